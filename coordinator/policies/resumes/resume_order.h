// SPDX-License-Identifier: Apache-2.0
// The selection of the parked job that resumes automatically next: the job that was parked the longest. A job
// that cannot resume now has a claim on every GPU that would be suitable once the jobs there have left. Jobs
// that were parked later get only the memory beyond the claims (docs/adr/0019). Pure.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "coordinator/policies/placement/placement.h"

namespace ckpt::coordinator {

struct ParkedJob {
  JobId id = 0;
  std::int64_t parked_ms = 0;
  // True if a resume of the job may be tried now. False just after the job was parked, or after its last
  // attempt failed.
  bool ready = true;
  PlacementRequest request;
};

struct NextResume {
  JobId id = 0;
  std::vector<std::pair<Place, std::uint64_t>> claims;  // the claims of earlier jobs, whose memory this job
                                                        // may not use
};

[[nodiscard]] std::optional<NextResume> next_to_resume(std::vector<ParkedJob> parked,
                                                       std::vector<GpuView> gpus);

}  // namespace ckpt::coordinator
