// SPDX-License-Identifier: Apache-2.0
// Nodes and GPUs as the API shows them (libckpt/api). Pure except for reading the tables.
#pragma once

#include <optional>
#include <vector>

#include "coordinator/fleet/cordons.h"
#include "coordinator/fleet/gpu_faults.h"
#include "coordinator/fleet/jobs.h"
#include "coordinator/fleet/nodes.h"
#include "coordinator/health/policy.h"
#include "libckpt/api/node.h"

namespace ckpt::coordinator {

[[nodiscard]] api::MemoryHistory memory_view(const MemoryHistory& memory);
[[nodiscard]] api::Cordon cordon_view(const Cordon& cordon);
[[nodiscard]] std::vector<api::Cordon> cordons_view(const std::vector<Cordon>& cordons);
[[nodiscard]] api::GpuFault fault_view(const GpuFault& fault);
[[nodiscard]] api::Node node_view(const Node& node, const JobTable& jobs, const CordonTable& cordons,
                                  const PolicyTable& policy);
// Returns the API view of a GPU. `available` is the memory that placement would assign to a new job.
[[nodiscard]] api::Gpu gpu_view(const Node& node, const wire::GpuInfo& gpu, std::uint64_t available,
                                JobTable& jobs, const CordonTable& cordons, const GpuFaults& faults);

}  // namespace ckpt::coordinator
