// SPDX-License-Identifier: Apache-2.0
#include "coordinator/lifecycle/job_draft.h"

#include <fmt/format.h>

namespace ckpt::coordinator::lifecycle {

JobDraft::JobDraft(std::vector<const Job*> ranks, const JobView& view, std::int64_t now_ms)
    : before_(std::move(ranks)), changed_(before_.size()), view_(view), now_ms_(now_ms) {
  checked_.reserve(before_.size());
  for (const Job* rank : before_) checked_.push_back(state_of(*rank));
}

Result<void> JobDraft::check_hop(std::size_t at) {
  const RankState from = std::exchange(checked_[at], state_of(rank(at)));
  if (may_go(from, checked_[at])) return ok();
  return Error(ErrorCode::kInternal, fmt::format("job {} cannot change from state {} to {}", label(rank(at)),
                                                 to_string(from), to_string(checked_[at])));
}

Step JobDraft::take() && {
  Step step;
  for (const std::unique_ptr<Job>& rank : changed_)
    if (rank) step.changed.push_back(std::move(*rank));
  step.actions = std::move(actions_);
  return step;
}

}  // namespace ckpt::coordinator::lifecycle
