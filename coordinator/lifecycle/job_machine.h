// SPDX-License-Identifier: Apache-2.0
// The life of a job as a state machine: start, run, move, be parked in an image, return, stop, be lost. Each
// step takes the ranks of one job, events of some of them and a view of the rest of the cluster. It returns
// the rows to store in one write, and the actions that follow. docs/adr/0054-the-job-is-a-machine.md has the
// rules, and job_transitions.txt (tests/model) has the transitions.
//
// After each event the rules among ranks are applied (rank_rules.h). They change nothing in a job of one
// rank.
// Threads: pure functions. Errors: kRefused for an order that the rank's state does not allow; kInternal for
// a step that the table of transitions lacks. Nothing has changed then.
#pragma once

#include <span>
#include <utility>

#include "coordinator/lifecycle/job_draft.h"

namespace ckpt::coordinator::lifecycle {

// An event of the rank with the index `rank` in the job.
struct RankEvent {
  std::size_t rank = 0;
  JobEvent event;
};

// This option determines whether step() applies the rules among ranks. kLater is for a fact that could not be
// stored. The fact takes effect, and a later settle() applies the rules. The delay is necessary, because a
// rule's orders must be stored before they are sent.
enum class Rules : std::uint8_t { kNow, kLater };
[[nodiscard]] Result<Step> step(std::vector<const Job*> ranks, std::span<const RankEvent> events,
                                const JobView& view, std::int64_t now_ms, Rules rules = Rules::kNow);
// Applies only the rules among ranks: after a restart of the coordinator, and after a rule had to wait.
[[nodiscard]] Result<Step> settle(std::vector<const Job*> ranks, const JobView& view, std::int64_t now_ms);

// Applies one event within a step. Nested steps also use this function, so each transition is checked against
// the table.
Result<void> apply(JobDraft& draft, std::size_t rank, const JobEvent& event);

// Checks whether the row may be removed: the rank has ended, and no instance of it exists. Otherwise returns
// kRefused with the reason.
[[nodiscard]] Result<void> check_removable(const Job& rank, const JobView& view);

}  // namespace ckpt::coordinator::lifecycle
