// SPDX-License-Identifier: Apache-2.0
// The tasks that show snapshots, suspends, restores and resumes to the clients that requested and watch them.
// They are stored in memory only. After a restart of the coordinator an operation continues, but its client
// is no longer known.
// Threads: one io_context on one thread. Ownership: owns the newest 500 tasks; find a task again after every
// co_await. Errors: none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/images/images.h"
#include "coordinator/state/signal.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::coordinator {

using TaskId = std::uint64_t;

struct ImageTask {
  TaskId id = 0;
  std::string verb;  // the command: snapshot, suspend, park, restore or resume
  JobId job = 0;
  std::string job_name;
  bool open = true;
  std::string state;           // the progress while the task is open
  std::optional<Error> error;  // the failure of a closed task
  int exit_code = 0;           // the exit code of the command that requested the task
  std::optional<Image> image;
  std::vector<Image> images;  // a gang's images by rank
  std::string places;         // the nodes of the ranks of a continued gang
  std::optional<wire::SnapshotReport> report;
  std::optional<Restored> restored;
  std::int64_t fill_ns = -1;  // the time for reading the image into memory; negative: not known
};

// These functions convert a task id to and from text such as "t12". Other text yields nullopt.
[[nodiscard]] std::string task_text(TaskId id);
[[nodiscard]] std::optional<TaskId> parse_task_id(std::string_view text);

class ImageTasks {
 public:
  ImageTasks(control::asio::any_io_executor executor, wire::IdTag tag)
      : changed_(std::move(executor)), tag_(tag) {}

  ImageTask& begin(std::string verb, const Job& job, std::string state);
  ImageTask& begin(std::string verb, JobId job, std::string job_name, std::string state);
  [[nodiscard]] ImageTask* find(TaskId id);
  void enter(TaskId id, std::string state);
  void fail(TaskId id, const Error& error, int exit_code);
  void finish(TaskId id);
  void notify() { changed_.notify(); }
  // Returns once the task is not open any more, or at the deadline.
  control::Task<> wait(TaskId id, std::chrono::steady_clock::time_point deadline);

 private:
  Signal changed_;
  wire::IdTag tag_;
  std::uint64_t next_ = 1;
  std::map<TaskId, ImageTask> tasks_;
};

}  // namespace ckpt::coordinator
