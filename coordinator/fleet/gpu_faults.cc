// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/gpu_faults.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

namespace ckpt::coordinator {

std::string to_text(const GpuFault& fault) {
  constexpr std::int64_t kMsPerSecond = 1000;
  if (fault.cordoned) return fault.reason + " (cordoned)";
  if (fault.closed_until_ms == 0) return fault.reason;
  const std::time_t until = fault.closed_until_ms / kMsPerSecond;
  return fmt::format("suspect until {:%H:%M:%S}Z: {}", fmt::gmtime(until), fault.reason);
}

}  // namespace ckpt::coordinator
