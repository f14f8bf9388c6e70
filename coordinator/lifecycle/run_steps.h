// SPDX-License-Identifier: Apache-2.0
// Steps of a rank that starts, runs, moves and ends.
// Threads: pure functions. Errors: those of apply() (job_machine.h).
#pragma once

#include <string>

#include "coordinator/lifecycle/job_draft.h"

namespace ckpt::coordinator::lifecycle {

inline constexpr int kExitOfFailed = 125;
inline constexpr int kExitOfStopped = 143;

// The memory, processes and obstacles that the report of its own instance brings: facts that no transition reads. Returns
// true if the memory's history has changed, which is stored later for many jobs at once.
bool take_report(Job& rank, const wire::JobInstance& instance, std::int64_t now_ms);

// It ends: state, code, reason, time, and the entry in the event log.
void end(JobDraft& draft, std::size_t at, JobState state, int exit_code, std::string reason);
// An open migration or operation judges its instances, and nothing else does.
[[nodiscard]] bool is_judged_elsewhere(const Job& rank, const JobView& view);

Result<void> on(JobDraft& draft, std::size_t at, const StartAnswered& event);
Result<void> on(JobDraft& draft, std::size_t at, const Reported& event);
Result<void> on(JobDraft& draft, std::size_t at, const Missing& event);
Result<void> on(JobDraft& draft, std::size_t at, const LeftBehind& event);
Result<void> on(JobDraft& draft, std::size_t at, const MoveRunsAt& event);
Result<void> on(JobDraft& draft, std::size_t at, const FoundRunning& event);
Result<void> on(JobDraft& draft, std::size_t at, const NodeRemoved& event);
Result<void> on(JobDraft& draft, std::size_t at, const RunsUnmanaged& event);
Result<void> on(JobDraft& draft, std::size_t at, const Proven& event);
Result<void> on(JobDraft& draft, std::size_t at, const NodeFenced& event);
Result<void> on(JobDraft& draft, std::size_t at, const Confirmed& event);

}  // namespace ckpt::coordinator::lifecycle
