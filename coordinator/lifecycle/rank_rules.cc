// SPDX-License-Identifier: Apache-2.0
#include "coordinator/lifecycle/rank_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "coordinator/lifecycle/job_machine.h"
#include "coordinator/lifecycle/rank_state.h"

namespace ckpt::coordinator::lifecycle {
namespace {

std::vector<const Job*> ranks_of(const JobDraft& draft) {
  std::vector<const Job*> ranks;
  ranks.reserve(draft.size());
  for (std::size_t at = 0; at < draft.size(); ++at) ranks.push_back(&draft.rank(at));
  return ranks;
}

// Returns the ranks that neither have ended nor are being stopped.
std::vector<std::size_t> others_to_stop(const JobDraft& draft) {
  std::vector<std::size_t> others;
  for (std::size_t at = 0; at < draft.size(); ++at)
    if (!is_ended(draft.rank(at).state) && !draft.rank(at).stop_requested) others.push_back(at);
  return others;
}

Result<void> stop_others(JobDraft& draft, const Job& failed) {
  const std::vector<std::size_t> others = others_to_stop(draft);
  if (others.empty()) return ok();
  const auto is_failed = [&](const Job* rank) { return rank->id == failed.id; };
  const auto ranks = ranks_of(draft);
  const auto at = static_cast<std::size_t>(std::ranges::find_if(ranks, is_failed) - ranks.begin());
  draft.log(at, "gang-ends",
            fmt::format("the other ranks of {} are stopped: {}", failed.spec.gang.name, reason_of(ranks)),
            failed.node());
  for (const std::size_t other : others) {
    CKPT_TRYV(apply(draft, other, Stop{kGraceWithFailedMs}));
  }
  return ok();
}

Result<void> park_others(JobDraft& draft) {
  const auto ranks = ranks_of(draft);
  const auto rests = [](const Job* rank) { return state_of(*rank) == RankState::kParked; };
  const auto parked = std::ranges::find_if(ranks, rests);
  if (parked == ranks.end()) return ok();
  const std::string reason = fmt::format("rank {} {}", (*parked)->rank_number(), kRestsWithOthers);
  for (std::size_t at = 0; at < draft.size(); ++at) {
    if (draft.rank(at).stop_requested) continue;
    CKPT_TRYV(apply(draft, at, RankParkedAgain{reason}));
  }
  return ok();
}

}  // namespace

// Returns the first rank that failed. A node may report a rank that was ended with the other ranks before it
// reports the rank that failed.
const Job* first_failed(std::span<const Job* const> ranks) {
  const auto order = [](const Job& rank) { return std::pair(rank.ended_on_request, rank.ended_ms); };
  const Job* first = nullptr;
  for (const Job* rank : ranks) {
    const bool good = !is_ended(rank->state) || (rank->state == JobState::kExited && rank->exit_code == 0);
    if (!good && (first == nullptr || order(*rank) < order(*first))) first = rank;
  }
  return first;
}

JobState state_of(std::span<const Job* const> ranks) {
  const auto any = [&ranks](JobState state) {
    return std::ranges::any_of(ranks, [state](const Job* rank) { return rank->state == state; });
  };
  const bool ended = std::ranges::all_of(ranks, [](const Job* rank) { return is_ended(rank->state); });
  for (const JobState state : {JobState::kStarting, JobState::kRestoring, JobState::kParked})
    if (!ended && any(state)) return state;
  if (!ended) return JobState::kRunning;
  const Job* failed = first_failed(ranks);
  return failed == nullptr ? JobState::kExited : failed->state;
}

std::string reason_of(std::span<const Job* const> ranks) {
  const Job* failed = first_failed(ranks);
  if (failed == nullptr) return {};
  const std::string rank = fmt::format("rank {} ", failed->rank_number());
  if (failed->state == JobState::kExited && failed->exit_code >= 0)
    return rank + fmt::format("ended with exit code {}", failed->exit_code);
  return rank + std::string(to_string(failed->state)) + (failed->reason.empty() ? "" : ": ") + failed->reason;
}

Result<void> settle(JobDraft& draft) {
  // A pending stop of a parked rank is applied again, because an older build could lose it.
  for (std::size_t at = 0; at < draft.size(); ++at) {
    if (!draft.rank(at).stop_requested || state_of(draft.rank(at)) != RankState::kParked) continue;
    CKPT_TRYV(apply(draft, at, Stop{draft.rank(at).stop_grace_ms}));
  }
  if (first_failed(ranks_of(draft)) == nullptr) {
    CKPT_TRYV(park_others(draft));
  }
  // The check is repeated, because a rank that could not be parked has failed by now.
  const Job* failed = first_failed(ranks_of(draft));
  return failed == nullptr ? ok() : stop_others(draft, *failed);
}

}  // namespace ckpt::coordinator::lifecycle
