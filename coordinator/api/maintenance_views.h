// SPDX-License-Identifier: Apache-2.0
// Drains, and the GPUs in an answer to uncordon, as the API shows them (libckpt/api). Pure.
#pragma once

#include <vector>

#include "coordinator/fleet/gpu_faults.h"
#include "coordinator/maintenance/drains.h"
#include "libckpt/api/drain.h"

namespace ckpt::coordinator {

[[nodiscard]] api::Drain drain_view(const Drain& drain);
[[nodiscard]] api::DrainPlan drain_plan_view(const DrainRequest& request,
                                             const std::vector<Drains::Prospect>& prospects);
[[nodiscard]] api::ForgivenGpu forgiven_view(const Place& place, const GpuFault& fault);
[[nodiscard]] api::SuspectGpu suspect_view(const Place& place, const GpuFault& fault);

}  // namespace ckpt::coordinator
