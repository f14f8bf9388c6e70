// SPDX-License-Identifier: Apache-2.0
// Findings about GPUs, and what follows from one. Plain values and pure functions.
//
// A finding is an event; what it forbids lasts: a job that comes to the GPU later must not stay there either.
// Threads: one. Ownership: results point into the list that they are from. Errors: none.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/policies/evacuation/evacuation.h"

namespace ckpt::coordinator {

struct Finding {
  std::int64_t row = 0;  // in the store; grows
  std::string node;
  wire::HealthFinding reported;
  bool acted = false;   // decided on, be it that nothing is to be done
  bool paused = false;  // so was the policy when it was decided on: nothing follows from it, also not later
  [[nodiscard]] Place place() const { return {node, reported.gpu}; }
  // It speaks against the GPU, and not only about a program.
  [[nodiscard]] bool is_suspicion() const;
};

// A GPU with a finding of its own is suspect for so long, even if it was not cordoned.
inline constexpr std::int64_t kSuspicionMs = 600'000;

// Returns at most one finding for each GPU: the one for which no job may stay there. The one that cordoned it
// last counts for as long as the health policy's cordon stands, as `is_cordoned` tells. Without a cordon, the newest
// finding within kSuspicionMs counts that did not ask for one. Findings that are not decided on are left out.
[[nodiscard]] std::vector<const Finding*> standing_findings(
    const std::vector<Finding>& all, const std::function<bool(const Place&)>& is_cordoned,
    std::int64_t now_ms);

// Returns true if a measure must be taken for the job.
[[nodiscard]] bool concerns(wire::HealthOutcome outcome);
// The verdict for the job's instance of now: its own, else that for the GPU.
[[nodiscard]] wire::HealthOutcome outcome_for(const wire::HealthFinding& finding, const Job& job);
[[nodiscard]] const wire::JobVerdict* verdict_of(const wire::HealthFinding& finding, JobId job);

// The job has a rank there.
[[nodiscard]] bool is_on(const Place& place, const Job& job);
// An evacuation of the job because of that finding.
[[nodiscard]] Evacuation evacuation_of(const Job& job, const Finding& finding, wire::HealthOutcome outcome,
                                       std::int64_t now_ms);

// Returns the evacuation of a job that a new finding concerns. One that ended is evacuated only if it died of the
// fault.
[[nodiscard]] std::optional<Evacuation> evacuation_for(const Job& job, const Finding& finding,
                                                       std::int64_t now_ms);
// Returns the evacuation of a job that has come to a GPU whose finding stands.
[[nodiscard]] std::optional<Evacuation> arrival_of(const Job& job, const Finding& finding,
                                                   std::int64_t now_ms);
// Returns true if that evacuation has decided on the job's instance at the place.
[[nodiscard]] bool has_decided(const Evacuation& evacuation, const Job& job, const Place& place);
// Returns the job with its images in doubt; nullopt: the finding casts no new doubt on them.
[[nodiscard]] std::optional<Job> doubted(const Job& job, const Finding& finding);
// Returns true if the migration would bring its job to the place, and can still be given up.
[[nodiscard]] bool is_coming(const Migration& migration, const Place& place);

}  // namespace ckpt::coordinator
