// SPDX-License-Identifier: Apache-2.0
// The life of a job as a machine: start, run, move, rest in an image, come back, stop, lost. Each step takes the ranks of
// one job, an event of some of them and a view of the rest of the cluster. It returns the rows to store, in one write,
// and the actions that follow. docs/adr/0054-the-job-is-a-machine.md has the rules; job_transitions.txt (tests/model) the
// transitions.
//
// After each event the rules among ranks hold again (rank_rules.h). They change nothing in a job of one rank.
// Threads: pure functions. Errors: an order that the rank's state does not allow: kRefused; a step that the table of
// transitions does not have: kInternal. Then nothing has changed.
#pragma once

#include <span>
#include <utility>

#include "coordinator/lifecycle/job_draft.h"

namespace ckpt::coordinator::lifecycle {

// An event of the rank at that place among the job's.
struct RankEvent {
  std::size_t rank = 0;
  JobEvent event;
};

// kLater: the rules among ranks are left to a later settle(). For a fact that the store refuses: it counts, and orders
// follow from a rule only once they are stored.
enum class Rules : std::uint8_t { kNow, kLater };
[[nodiscard]] Result<Step> step(std::vector<const Job*> ranks, std::span<const RankEvent> events,
                                const JobView& view, std::int64_t now_ms, Rules rules = Rules::kNow);
// The rules among ranks alone: after a restart of the coordinator, and where a rule had to wait.
[[nodiscard]] Result<Step> settle(std::vector<const Job*> ranks, const JobView& view, std::int64_t now_ms);

// One event within a step; steps of it go through here, too, so each hop is checked against the table.
Result<void> apply(JobDraft& draft, std::size_t rank, const JobEvent& event);

// Ok if the row may be removed: it has ended, and nothing of it lives. kRefused with the reason.
[[nodiscard]] Result<void> check_removable(const Job& rank, const JobView& view);

}  // namespace ckpt::coordinator::lifecycle
