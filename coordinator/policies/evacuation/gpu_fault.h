// SPDX-License-Identifier: Apache-2.0
// The fault of a GPU, and how it follows from findings and from the health policy's cordon. Plain values and
// pure functions. Times are in Unix milliseconds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "coordinator/policies/evacuation/findings.h"

namespace ckpt::coordinator {

struct GpuFault {
  std::string reason;                // the finding's reason
  std::int64_t time_ms = 0;          // the finding's time; 0: not known
  bool cordoned = false;             // true if the health policy has cordoned the GPU
  bool forbids_staying = false;      // no job may stay on the GPU
  bool forbids_reading = false;      // the GPU's memory may not be read either
  std::int64_t closed_until_ms = 0;  // the time until which the GPU accepts no new job, cordoned or not
  // Returns whether the GPU is unreliable, so that operators must be alerted.
  [[nodiscard]] bool is_unhealthy() const { return cordoned || forbids_staying; }
};

// A cordon of a GPU by the health policy.
struct HealthCordon {
  std::string reason;
  std::int64_t since_ms = 0;
};

// The facts about a GPU that determine its fault.
struct GpuHealth {
  const Finding* newest_suspicion = nullptr;  // the newest finding about the GPU itself; null: there is none
  std::optional<HealthCordon> cordon;
  std::int64_t forgiven_ms = 0;   // findings up to this time were forgiven by the operator
  bool is_policy_paused = false;  // the policy is paused on the GPU's node, so that findings close no GPU
                                  // there
};

// Returns the fault of the GPU, or nullopt if no fault is known. While the policy is paused, only a cordon
// counts.
[[nodiscard]] std::optional<GpuFault> fault_of(const GpuHealth& gpu, std::int64_t now_ms);

// Returns the fault as text for lists and refusals: "Xid 79 (cordoned)", "suspect until 10:58:25Z: Xid 94".
[[nodiscard]] std::string to_text(const GpuFault& fault);

}  // namespace ckpt::coordinator
