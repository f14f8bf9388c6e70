// SPDX-License-Identifier: Apache-2.0
// The rules among the ranks of one job. Where one has failed the others are stopped: they wait for it in their next
// collective, for ever. Where one did not go on from its image the others rest again in the images that they came from.
// Threads: pure functions. Errors: settle() returns the machine's; a rank whose image is not known is a Warning.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "coordinator/lifecycle/job_draft.h"

namespace ckpt::coordinator::lifecycle {

// From SIGTERM to SIGKILL of the ranks that are stopped with one that failed.
inline constexpr std::int64_t kGraceWithFailedMs = 10'000;
// Ends the reason of a rank that rests since another one did not go on.
inline constexpr std::string_view kRestsWithOthers = "did not go on from its image";

// The rank whose end ends the job: the first that ended otherwise than with exit code 0; null: there is none.
[[nodiscard]] const Job* first_failed(std::span<const Job* const> ranks);
// Ended once all ranks have: as the first that failed, else with exit code 0. Parked and restoring as soon as one is.
[[nodiscard]] JobState state_of(std::span<const Job* const> ranks);
// Why the job ended, or is about to end; empty: as it should.
[[nodiscard]] std::string reason_of(std::span<const Job* const> ranks);

// Carries the rules out, as events of the ranks that they concern.
Result<void> settle(JobDraft& draft);

}  // namespace ckpt::coordinator::lifecycle
