// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/resumes/resume_order.h"

#include <algorithm>
#include <tuple>

namespace ckpt::coordinator {
namespace {

// Checks whether the GPU would be suitable once our jobs have left it. Memory of other programs is not
// expected to become free, because a job that waits for such memory must not block other jobs.
bool could_go(GpuView gpu, const PlacementRequest& request) {
  gpu.free_bytes = std::min(gpu.total_bytes, gpu.free_bytes + gpu.shown_bytes + gpu.promised_bytes);
  gpu.promised_bytes = 0;
  return objections(gpu, request).empty();
}

}  // namespace

std::optional<NextResume> next_to_resume(std::vector<ParkedJob> parked, std::vector<GpuView> gpus) {
  std::sort(parked.begin(), parked.end(), [](const ParkedJob& a, const ParkedJob& b) {
    return std::tie(a.parked_ms, a.id) < std::tie(b.parked_ms, b.id);
  });
  NextResume next;
  std::vector<GpuView> left = gpus;  // the GPUs with the memory that the claims leave
  for (const ParkedJob& job : parked) {
    const bool fits = std::any_of(left.begin(), left.end(),
                                  [&](const GpuView& gpu) { return objections(gpu, job.request).empty(); });
    if (job.ready && fits) {
      next.id = job.id;
      return next;
    }
    const std::uint64_t bytes = job.request.memory_bytes + job.request.margin_bytes;
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      if (!could_go(gpus[i], job.request)) continue;
      left[i].promised_bytes += bytes;
      next.claims.emplace_back(gpus[i].place, bytes);
    }
  }
  return std::nullopt;
}

}  // namespace ckpt::coordinator
