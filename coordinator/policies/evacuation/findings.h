// SPDX-License-Identifier: Apache-2.0
// Findings about GPUs, and the consequences of a finding. Plain values and pure functions.
//
// A finding is an event, but its consequences last: a job that arrives on the GPU later must not stay there
// either.
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
  std::int64_t row = 0;  // the row in the store; newer findings have higher rows
  std::string node;
  wire::HealthFinding reported;
  bool acted = false;   // a decision was made, even if nothing is to be done
  bool paused = false;  // the policy was paused at the decision, so the finding never has consequences
  [[nodiscard]] Place place() const { return {node, reported.gpu}; }
  // Returns whether the finding is about the GPU, and not only about a program.
  [[nodiscard]] bool is_suspicion() const;
};

// The time for which a finding makes its GPU suspect, even if the GPU was not cordoned.
inline constexpr std::int64_t kSuspicionMs = 600'000;

// Returns at most one finding for each GPU: the finding because of which no job may stay on the GPU. While
// the health policy's cordon exists (`is_cordoned`), this is the newest finding that cordoned the GPU.
// Without a cordon, it is the newest finding within kSuspicionMs that required no cordon. Findings without a
// decision are ignored.
[[nodiscard]] std::vector<const Finding*> standing_findings(
    const std::vector<Finding>& all, const std::function<bool(const Place&)>& is_cordoned,
    std::int64_t now_ms);

// Returns true if the outcome requires an action for the job.
[[nodiscard]] bool concerns(wire::HealthOutcome outcome);
// Returns the verdict for the job's current instance, or else the verdict for the GPU.
[[nodiscard]] wire::HealthOutcome outcome_for(const wire::HealthFinding& finding, const Job& job);
[[nodiscard]] const wire::JobVerdict* verdict_of(const wire::HealthFinding& finding, JobId job);

// Returns whether the job has a rank on the GPU.
[[nodiscard]] bool is_on(const Place& place, const Job& job);
// Creates an evacuation of the job, with the finding as its reason.
[[nodiscard]] Evacuation evacuation_of(const Job& job, const Finding& finding, wire::HealthOutcome outcome,
                                       std::int64_t now_ms);

// Returns the evacuation of a job that a new finding concerns. A job that has ended is evacuated only if the
// fault terminated it.
[[nodiscard]] std::optional<Evacuation> evacuation_for(const Job& job, const Finding& finding,
                                                       std::int64_t now_ms);
// Returns the evacuation of a job that has arrived on a GPU with an active finding.
[[nodiscard]] std::optional<Evacuation> arrival_of(const Job& job, const Finding& finding,
                                                   std::int64_t now_ms);
// Returns true if the evacuation has already decided about the job's instance on that GPU.
[[nodiscard]] bool has_decided(const Evacuation& evacuation, const Job& job, const Place& place);
// Returns the job with its images marked as suspect, or nullopt if the finding makes no further image
// suspect.
[[nodiscard]] std::optional<Job> doubted(const Job& job, const Finding& finding);
// Returns true if the migration would move its job to that GPU and can still be canceled.
[[nodiscard]] bool is_coming(const Migration& migration, const Place& place);

}  // namespace ckpt::coordinator
