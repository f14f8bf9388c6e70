// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/evacuation/gpu_fault.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

namespace ckpt::coordinator {

std::optional<GpuFault> fault_of(const GpuHealth& gpu, std::int64_t now_ms) {
  const Finding* finding = gpu.newest_suspicion;
  const bool is_recent = finding != nullptr && finding->reported.time_ms > now_ms - kSuspicionMs &&
                         finding->reported.time_ms > gpu.forgiven_ms && !gpu.is_policy_paused;
  if (!gpu.cordon && !is_recent) return std::nullopt;
  GpuFault fault;
  fault.reason = finding != nullptr ? finding->reported.reason : gpu.cordon->reason;
  fault.time_ms = finding != nullptr ? finding->reported.time_ms : gpu.cordon->since_ms;
  fault.cordoned = gpu.cordon.has_value();
  fault.forbids_reading = finding != nullptr && finding->reported.outcome == wire::HealthOutcome::kRestore;
  if (is_recent) fault.closed_until_ms = finding->reported.time_ms + kSuspicionMs;
  fault.forbids_staying = is_recent && !finding->reported.cordon && concerns(finding->reported.outcome);
  return fault;
}

std::string to_text(const GpuFault& fault) {
  constexpr std::int64_t kMsPerSecond = 1000;
  if (fault.cordoned) return fault.reason + " (cordoned)";
  if (fault.closed_until_ms == 0) return fault.reason;
  const std::time_t until = fault.closed_until_ms / kMsPerSecond;
  return fmt::format("suspect until {:%H:%M:%S}Z: {}", fmt::gmtime(until), fault.reason);
}

}  // namespace ckpt::coordinator
