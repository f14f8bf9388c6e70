// SPDX-License-Identifier: Apache-2.0
// Selects the parked job that resumes by itself next: the one that has rested the longest. A job that cannot
// resume now has a claim on every GPU where it could go once jobs there have left. Jobs parked after it get
// the memory beyond the claims (docs/adr/0019). Pure.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "coordinator/policies/placement/placement.h"

namespace ckpt::coordinator {

struct ParkedJob {
  JobId id = 0;
  std::int64_t parked_ms = 0;
  // May be tried now. False just after the job was parked, or after its last attempt failed.
  bool ready = true;
  PlacementRequest request;
};

struct NextResume {
  JobId id = 0;
  std::vector<std::pair<Place, std::uint64_t>> claims;  // of those before it: it may not take that
};

[[nodiscard]] std::optional<NextResume> next_to_resume(std::vector<ParkedJob> resting,
                                                       std::vector<GpuView> gpus);

}  // namespace ckpt::coordinator
