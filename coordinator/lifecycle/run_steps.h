// SPDX-License-Identifier: Apache-2.0
// The steps of a rank that starts, runs, moves and ends.
// Threads: pure functions. Errors: those of apply() (job_machine.h).
#pragma once

#include <string>

#include "coordinator/lifecycle/job_draft.h"

namespace ckpt::coordinator::lifecycle {

inline constexpr int kExitOfFailed = 125;
inline constexpr int kExitOfStopped = 143;

// Takes over memory, processes and obstacles from the report of the rank's own instance. No transition reads
// these facts. Returns true if the memory's history has changed, which is stored later for many jobs
// together.
bool take_report(Job& rank, const wire::JobInstance& instance, std::int64_t now_ms);

// Records the end of the rank: sets state, code, reason and time, and adds the entry in the event log.
void end(JobDraft& draft, std::size_t at, JobState state, int exit_code, std::string reason);
// Returns whether an open migration or operation alone decides about the rank's instances.
[[nodiscard]] bool is_decided_elsewhere(const Job& rank, const JobView& view);

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
