// SPDX-License-Identifier: Apache-2.0
// The facts about a job's instance that an agent needs after a restart. They are the file "record" in the
// instance's folder HOME/jobs/jJOB.K/, or jJOB.K.mID/ of a standby. K is the incarnation it was started with;
// the one it runs as may be higher (SW-1). The migration is in the name since a given-up one's standby may
// still be ending while the next one's starts as the same K.
// Threads: values. Errors: kIo, kCorrupt; a folder without a readable record is no instance.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::agent {

struct JobRecord {
  static constexpr std::uint8_t kVersion = 4, kCompat = 1;
  wire::JobSpec spec;  // incarnation: the one it was started with
  wire::JobRole role = wire::JobRole::kFresh;
  wire::Incarnation incarnation = 0;  // the one it runs as
  wire::MigrationId migration = 0;    // of a standby
  std::int64_t started_unix_ms = 0;
  bool ran = false;  // a standby: it was resumed
  bool ended = false;
  bool moved = false;  // it ended because the job runs elsewhere
  std::int32_t exit_code = -1;
  // Transparent mode: UUID of the GPU that the process's context is on, or was when the driver saved it
  // (empty: the first rank's), and of the one that a restore which has begun puts it on. The second counts if
  // the driver does not report the context as saved.
  std::string context_gpu;
  std::string context_goes_to;
  std::uint64_t device_bytes = 0;        // of an adopted process, as the driver last reported
  std::uint8_t allowed_differences = 0;  // wire::kAllow...: a standby that is a new program
  template <class A>
  decltype(auto) fields(A& a) {
    return a(spec, role, incarnation, migration, started_unix_ms, ran, ended, moved, exit_code, context_gpu,
             context_goes_to, device_bytes, allowed_differences);
  }
};

// `migration`: 0 for an instance that no migration started.
[[nodiscard]] std::string instance_folder(const std::string& jobs_folder, wire::JobId job,
                                          wire::Incarnation started_as, wire::MigrationId migration = 0);
// Folders of instances, by name, oldest incarnation first; other entries are ignored.
Result<std::vector<std::string>> list_instance_folders(const std::string& jobs_folder);

Result<void> write_job_record(const std::string& folder, const JobRecord& record);

// Writes one instance's record from several threads: a record never replaces a later one.
class JobRecordWriter {
 public:
  explicit JobRecordWriter(std::string folder) : folder_(std::move(folder)) {}
  // `number` grows with each record. Durable when it returns: this record, or a later one.
  Result<void> write(const JobRecord& record, std::uint64_t number);
  // The folder with its content; later writes are dropped. Once: the folder may be a successor's afterwards.
  Result<void> remove_folder();

 private:
  const std::string folder_;
  std::mutex mutex_;
  std::uint64_t written_ = 0;
  bool removed_ = false;
};
Result<JobRecord> read_job_record(const std::string& folder);

}  // namespace ckpt::agent
