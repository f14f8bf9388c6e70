// SPDX-License-Identifier: Apache-2.0
#include "coordinator/lifecycle/job_machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "coordinator/lifecycle/image_steps.h"
#include "coordinator/lifecycle/rank_rules.h"
#include "coordinator/lifecycle/rank_state.h"
#include "coordinator/lifecycle/run_steps.h"

namespace ckpt::coordinator::lifecycle {

// Applies an event and checks the transitions. A nested step begins after the transition that led to it.
Result<void> apply(JobDraft& draft, std::size_t rank, const JobEvent& event) {
  CKPT_TRYV(draft.check_hop(rank));
  CKPT_TRYV(std::visit([&](const auto& one) { return on(draft, rank, one); }, event));
  return draft.check_hop(rank);
}

Result<Step> step(std::vector<const Job*> ranks, std::span<const RankEvent> events, const JobView& view,
                  std::int64_t now_ms, Rules rules) {
  JobDraft draft(std::move(ranks), view, now_ms);
  for (const RankEvent& one : events) {
    CKPT_TRYV(apply(draft, one.rank, one.event));
  }
  if (rules == Rules::kNow) {
    CKPT_TRYV(settle(draft));
  }
  return std::move(draft).take();
}

Result<Step> settle(std::vector<const Job*> ranks, const JobView& view, std::int64_t now_ms) {
  return step(std::move(ranks), {}, view, now_ms);
}

Result<void> check_removable(const Job& rank, const JobView& view) {
  const auto refused = [&rank](const std::string& reason) {
    return Error(ErrorCode::kRefused, "job " + label(rank) + " " + reason);
  };
  if (!is_ended(rank.state) && rank.stop_requested)
    return refused(fmt::format(
        "is being stopped, and node {} has not reported that the job ended. The job ends when the node "
        "reconnects; `gpumigrate node rm {} --force --fenced` confirms that the job no longer runs there",
        rank.node(), rank.node()));
  if (!is_ended(rank.state))
    return refused(fmt::format("is {}: only ended jobs can be removed; `gpumigrate stop {}` ends the job",
                               to_string(rank.state), rank.whole_name()));
  if (is_decided_elsewhere(rank, view))
    return refused("has ended, but one of its migrations or image operations is still open");
  if (rank.unfenced)
    return refused(
        fmt::format("was lost with node {}, which was removed and may still run the job: `gpumigrate node rm "
                    "{} --force --fenced` confirms that the job no longer runs there",
                    rank.node(), rank.node()));
  if (!rank.unfenced_nodes.empty())
    return refused(
        fmt::format("was stopped, but may still run on {}: the job ends when that node reconnects, or "
                    "`gpumigrate node rm NODE --force --fenced` confirms that the job no longer runs there",
                    fmt::join(rank.unfenced_nodes, ", ")));
  return ok();
}

}  // namespace ckpt::coordinator::lifecycle
