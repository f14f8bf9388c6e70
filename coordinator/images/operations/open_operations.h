// SPDX-License-Identifier: Apache-2.0
// The facts about open operations that exist only while this coordinator runs: the watching clients, the
// deadline, and the checkpoint store's answers. After a restart the time limits begin again.
// Threads: one. Ownership: borrows its dependencies, which outlive it. Errors: none.
#pragma once

#include <chrono>
#include <map>
#include <optional>

#include "coordinator/fleet/job_runner.h"
#include "coordinator/images/image_tasks.h"
#include "coordinator/settings/config.h"

namespace ckpt::coordinator {

class OpenOperations {
 public:
  using Clock = std::chrono::steady_clock;
  OpenOperations(const Config& config, ImageTasks& tasks, JobActions& actions);
  OpenOperations(const OpenOperations&) = delete;
  OpenOperations& operator=(const OpenOperations&) = delete;

  // Starts the operation's time limit. Returns false if the operation is already being run.
  bool begin_to_drive(JobId id);
  [[nodiscard]] bool is_driven(JobId id) const;
  void end_to_drive(JobId id);

  // These functions set, return and close the task that shows the operation to the requesting client. 0 means
  // that there is no task, or none is known.
  void show(JobId id, TaskId task) { open_[id].task = task; }
  [[nodiscard]] TaskId task_id(JobId id) const;
  void close(JobId id, const std::optional<Error>& error, int exit_code);

  // These functions track whether the operation's checkpoint store answers, and whether it was listed after
  // the job's end was seen.
  void set_listed(JobId id, bool listed) { open_[id].listed = listed; }
  [[nodiscard]] bool is_listed(JobId id) const;
  void checkpoint_store_answers(JobId id) { open_[id].away_since.reset(); }
  void checkpoint_store_is_away(JobId id);

  // Returns the deadline of an operation that begins now.
  [[nodiscard]] Clock::time_point deadline() const;
  // Returns whether the operation's deadline, or the time limit of its checkpoint store's answer, has passed.
  [[nodiscard]] bool is_expired(JobId id) const;
  // Returns the operation's remaining time, at most kLongest.
  static constexpr std::chrono::minutes kLongest{60};
  [[nodiscard]] std::chrono::milliseconds time_left(JobId id) const;
  [[nodiscard]] Error why_given_up(const Job& job) const;

 private:
  struct Open {
    TaskId task = 0;
    bool driven = false;
    bool listed = false;
    std::optional<Clock::time_point> deadline;
    std::optional<Clock::time_point> away_since;
  };
  [[nodiscard]] const Open* find(JobId id) const;
  void end(JobId id, const lifecycle::TaskEnded& ended);

  const Config& config_;
  ImageTasks& tasks_;
  std::map<JobId, Open> open_;
};

}  // namespace ckpt::coordinator
