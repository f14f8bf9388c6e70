// SPDX-License-Identifier: Apache-2.0
// The ranks of one job during a step. A rank is copied when it is first changed, and nothing outside is
// changed.
// Threads: one. Ownership: borrows ranks and view for the step. Errors: none.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "coordinator/lifecycle/job_events.h"
#include "coordinator/lifecycle/job_view.h"
#include "coordinator/lifecycle/rank_state.h"

namespace ckpt::coordinator::lifecycle {

// The outcome of a step: the changed rows, and then the actions in their order.
struct Step {
  std::vector<Job> changed;
  std::vector<std::pair<JobId, JobAction>> actions;
};

class JobDraft {
 public:
  JobDraft(std::vector<const Job*> ranks, const JobView& view, std::int64_t now_ms);

  [[nodiscard]] std::size_t size() const { return before_.size(); }
  [[nodiscard]] const Job& rank(std::size_t at) const { return changed_[at] ? *changed_[at] : *before_[at]; }
  Job& change(std::size_t at) {
    if (!changed_[at]) changed_[at] = std::make_unique<Job>(*before_[at]);
    return *changed_[at];
  }
  void act(std::size_t at, JobAction action) { actions_.emplace_back(rank(at).id, std::move(action)); }
  void log(std::size_t at, std::string kind, std::string text, std::string node) {
    act(at, LogEntry{std::move(kind), std::move(text), std::move(node)});
  }

  [[nodiscard]] const JobView& view() const { return view_; }
  [[nodiscard]] std::int64_t now_ms() const { return now_ms_; }
  // Checks that the rank's state may follow its state at the last call. Returns kInternal if there is no such
  // transition.
  Result<void> check_hop(std::size_t at);
  [[nodiscard]] Step take() &&;

 private:
  std::vector<const Job*> before_;
  std::vector<std::unique_ptr<Job>> changed_;  // the changed copies; null: unchanged
  std::vector<RankState> checked_;
  std::vector<std::pair<JobId, JobAction>> actions_;
  const JobView& view_;
  std::int64_t now_ms_;
};

}  // namespace ckpt::coordinator::lifecycle
