// SPDX-License-Identifier: Apache-2.0
// The facts about a job's instance that an agent needs after a restart. They are in the file "record" of the
// instance's folder HOME/jobs/jJOB.K/, or jJOB.K.mID/ for a standby. K is the incarnation that the instance
// was started with. The instance may run as a higher incarnation (SW-1). The migration ID in the name keeps
// two standbys of the same K apart. The standby of an aborted migration may still be exiting while the next
// migration's standby starts as that K.
// Threads: plain values. Errors: kIo, kCorrupt. A folder without a readable record is not an instance.
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
  wire::JobSpec spec;  // specification of the job; its incarnation is the one the instance was started with
  wire::JobRole role = wire::JobRole::kFresh;
  wire::Incarnation incarnation = 0;  // incarnation that the instance runs as
  wire::MigrationId migration = 0;    // migration that started the standby
  std::int64_t started_unix_ms = 0;
  bool ran = false;  // true if a standby was resumed
  bool ended = false;
  bool moved = false;  // true if the instance ended because the job runs elsewhere
  std::int32_t exit_code = -1;
  // Locations of the context in transparent mode. The first is the UUID of the GPU that the context is on, or
  // was on when the driver saved it. An empty value means the GPU of the first rank. The second is the UUID
  // of the GPU for a restore that has begun. The second counts if the driver does not report the context as
  // saved.
  std::string context_gpu;
  std::string context_goes_to;
  std::uint64_t device_bytes = 0;  // bytes of device memory that an adopted process uses, as the driver last
                                   // reported
  std::uint8_t allowed_differences = 0;  // wire::kAllow... flags for a standby that runs a new program
  template <class A>
  decltype(auto) fields(A& a) {
    return a(spec, role, incarnation, migration, started_unix_ms, ran, ended, moved, exit_code, context_gpu,
             context_goes_to, device_bytes, allowed_differences);
  }
};

// Returns the number of the GPU that a job with these ranks uses on this node. To an agent each job has one
// rank (docs/adr/0039).
[[nodiscard]] inline std::uint32_t gpu_of(const std::vector<wire::RankSpec>& ranks) {
  return ranks.front().gpu_index;
}
// Checks that an order or a record from outside has exactly one rank, and returns the rank.
Result<wire::RankSpec> only_rank(const std::vector<wire::RankSpec>& ranks);
// Returns the folder of an instance. `migration` is 0 for an instance that no migration started.
[[nodiscard]] std::string instance_folder(const std::string& jobs_folder, wire::JobId job,
                                          wire::Incarnation started_as, wire::MigrationId migration = 0);
// Returns the folders of all instances, sorted by job, incarnation and migration, each in ascending order.
// Other entries are ignored.
Result<std::vector<std::string>> list_instance_folders(const std::string& jobs_folder);

Result<void> write_job_record(const std::string& folder, const JobRecord& record);

// Writes one instance's record from several threads. An older record never replaces a newer one.
class JobRecordWriter {
 public:
  explicit JobRecordWriter(std::string folder) : folder_(std::move(folder)) {}
  // Writes the record. `number` grows with each record. When the function returns, this record or a later one
  // is durable.
  Result<void> write(const JobRecord& record, std::uint64_t number);
  // Removes the folder and its content. Later writes are dropped. Call this function once, because the folder
  // may belong to a successor afterwards.
  Result<void> remove_folder();

 private:
  const std::string folder_;
  std::mutex mutex_;
  std::uint64_t written_ = 0;
  bool removed_ = false;
};
Result<JobRecord> read_job_record(const std::string& folder);

}  // namespace ckpt::agent
