// SPDX-License-Identifier: Apache-2.0
// The facts about open operations that only last while this coordinator runs: the clients that watch one, its
// deadline, and its vault's answers. After a restart their time begins again.
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

  // Its time begins. False: it is driven already.
  bool begin_to_drive(JobId id);
  [[nodiscard]] bool is_driven(JobId id) const;
  void end_to_drive(JobId id);

  // The task that shows the operation to the client that requested it; null and 0: none, or not known.
  void show(JobId id, TaskId task) { open_[id].task = task; }
  [[nodiscard]] TaskId task_id(JobId id) const;
  void close(JobId id, const std::optional<Error>& error, int exit_code);

  // The operation's vault: whether it answers, and was listed since its job was seen to have ended.
  void set_listed(JobId id, bool listed) { open_[id].listed = listed; }
  [[nodiscard]] bool is_listed(JobId id) const;
  void vault_answers(JobId id) { open_[id].away_since.reset(); }
  void vault_is_away(JobId id);

  // When one that began now would be given up.
  [[nodiscard]] Clock::time_point deadline() const;
  // Its time is over, or that of its vault to answer.
  [[nodiscard]] bool is_expired(JobId id) const;
  // At most kLongest.
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
