// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gangs/gang.h"

#include <fmt/format.h>

#include <algorithm>

namespace ckpt::coordinator {

std::optional<Gang> find_gang(JobTable& jobs, JobId id) {
  Gang gang;
  gang.id = id;
  gang.ranks = jobs.ranks_of(id);
  if (gang.ranks.empty()) return std::nullopt;
  const wire::GangSpec& spec = gang.ranks.front()->spec.gang;
  gang.name = spec.name;
  gang.size = spec.ranks;
  return gang;
}

std::optional<Gang> find_gang(JobTable& jobs, std::string_view id_or_name) {
  const auto id = jobs.find_gang(id_or_name);
  return id ? find_gang(jobs, *id) : std::nullopt;
}

Error gang_was_removed(JobId id) {
  return {ErrorCode::kNotFound, "Job " + job_text(id) + " was removed"};
}

// Its node may report a rank that was ended with the others before the one that failed.
const Job* first_failed(const Gang& gang) {
  const auto order = [](const Job& rank) { return std::pair(rank.ended_as_told, rank.ended_ms); };
  const Job* first = nullptr;
  for (const Job* rank : gang.ranks) {
    const bool good = !is_ended(rank->state) || (rank->state == JobState::kExited && rank->exit_code == 0);
    if (!good && (first == nullptr || order(*rank) < order(*first))) first = rank;
  }
  return first;
}

JobState state_of(const Gang& gang) {
  const auto any = [&gang](JobState state) {
    return std::any_of(gang.ranks.begin(), gang.ranks.end(),
                       [state](const Job* rank) { return rank->state == state; });
  };
  const bool ended = std::all_of(gang.ranks.begin(), gang.ranks.end(),
                                 [](const Job* rank) { return is_ended(rank->state); });
  for (const JobState state : {JobState::kStarting, JobState::kRestoring, JobState::kParked})
    if (!ended && any(state)) return state;
  if (!ended) return JobState::kRunning;
  const Job* failed = first_failed(gang);
  return failed == nullptr ? JobState::kExited : failed->state;
}

int exit_code_of(const Gang& gang) {
  const Job* failed = first_failed(gang);
  return failed == nullptr ? 0 : failed->exit_code;
}

std::string reason_of(const Gang& gang) {
  const Job* failed = first_failed(gang);
  if (failed == nullptr) return {};
  const std::string rank = fmt::format("rank {} ", failed->ranks.front().rank);
  if (failed->state == JobState::kExited && failed->exit_code >= 0)
    return rank + fmt::format("ended with exit code {}", failed->exit_code);
  return rank + std::string(to_string(failed->state)) + (failed->reason.empty() ? "" : ": ") + failed->reason;
}

}  // namespace ckpt::coordinator
