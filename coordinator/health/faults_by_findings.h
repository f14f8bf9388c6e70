// SPDX-License-Identifier: Apache-2.0
// The faults of GPUs, by the findings and cordons of the health policy.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors: none.
#pragma once

#include "coordinator/fleet/cordons.h"
#include "coordinator/fleet/gpu_faults.h"
#include "coordinator/health/health.h"

namespace ckpt::coordinator {

// The faults of GPUs as the health policy decides (policies/evacuation/gpu_fault.h), from the current tables.
class FaultsByFindings final : public GpuFaults {
 public:
  FaultsByFindings(const HealthTable& health, const CordonTable& cordons, const PolicyTable& policy)
      : health_(health), cordons_(cordons), policy_(policy) {}
  [[nodiscard]] std::optional<GpuFault> find(const Place& place) const override;

 private:
  const HealthTable& health_;
  const CordonTable& cordons_;
  const PolicyTable& policy_;
};

}  // namespace ckpt::coordinator
