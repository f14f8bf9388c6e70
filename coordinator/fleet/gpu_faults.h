// SPDX-License-Identifier: Apache-2.0
// The faults of GPUs beyond their nodes' current reports: findings of the last minutes, and the health
// policy's cordons. Placement, lists and metrics use this interface of the health module.
// Threads: one io_context on one thread. Ownership: the coordinator's. Errors: none.
#pragma once

#include <optional>

#include "coordinator/policies/evacuation/gpu_fault.h"

namespace ckpt::coordinator {

class GpuFaults {
 public:
  virtual ~GpuFaults() = default;
  // Returns the fault of the GPU, or nullopt if no fault is known.
  [[nodiscard]] virtual std::optional<GpuFault> find(const Place& place) const = 0;
};

}  // namespace ckpt::coordinator
