// SPDX-License-Identifier: Apache-2.0
// The rules among the ranks of one job. If one rank has failed the others are stopped, because they would
// wait for it in their next collective forever. If one rank did not continue from its image, the others are
// parked again in their images.
// Threads: pure functions. Errors: settle() returns those of the machine; a rank whose image is not known
// causes a Warning.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "coordinator/lifecycle/job_draft.h"

namespace ckpt::coordinator::lifecycle {

// The time from SIGTERM to SIGKILL for ranks that are stopped because another rank failed.
inline constexpr std::int64_t kGraceWithFailedMs = 10'000;
// The end of the reason of a rank that is parked because another rank did not continue. Reasons in the store
// are compared with it, so the text must not change.
inline constexpr std::string_view kRestsWithOthers = "did not continue from its image";

// Returns the rank whose failure decides the result of the job: the first that ended other than with exit
// code 0. Returns null if there is none.
[[nodiscard]] const Job* first_failed(std::span<const Job* const> ranks);
// Returns the state of the job. It has ended once all ranks have ended, with the result of the first failed
// rank, otherwise with exit code 0. It is parked or restoring as soon as one rank is.
[[nodiscard]] JobState state_of(std::span<const Job* const> ranks);
// Returns why the job ended or is about to end. An empty string means a normal end.
[[nodiscard]] std::string reason_of(std::span<const Job* const> ranks);

// Applies the rules, as events of the affected ranks.
Result<void> settle(JobDraft& draft);

}  // namespace ckpt::coordinator::lifecycle
