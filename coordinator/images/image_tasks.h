// SPDX-License-Identifier: Apache-2.0
// Snapshots, suspends, restores and resumes, for the clients that requested and watch them. Kept in memory
// only: after a restart of the coordinator an operation continues, but its client is not known any more.
// Threads: one io_context on one thread. Ownership: tasks live here, the newest 500; look them up again after
// every co_await. Errors: none.
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
  std::string verb;  // snapshot, suspend, park, restore, resume
  JobId job = 0;
  std::string job_name;
  bool open = true;
  std::string state;           // while it is open
  std::optional<Error> error;  // once it is not: it failed
  int exit_code = 0;           // of a command that did this
  std::optional<Image> image;
  std::vector<Image> images;  // of a gang: by rank
  std::string places;         // of a gang that goes on: its ranks' nodes
  std::optional<wire::SnapshotReport> report;
  std::optional<Restored> restored;
  std::int64_t fill_ns = -1;  // reading the image into memory; negative: not known
};

// "t12"; nullopt for anything else.
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
  // Returns once it is not open any more, or at the deadline.
  control::Task<> wait(TaskId id, std::chrono::steady_clock::time_point deadline);

 private:
  Signal changed_;
  wire::IdTag tag_;
  std::uint64_t next_ = 1;
  std::map<TaskId, ImageTask> tasks_;
};

}  // namespace ckpt::coordinator
