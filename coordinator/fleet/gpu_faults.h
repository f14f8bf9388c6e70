// SPDX-License-Identifier: Apache-2.0
// The faults of a GPU beyond its node's current reports: findings of the last minutes, and the health
// policy's cordons. Placement, lists and metrics use this interface of the health module.
// Threads: one io_context on one thread. Ownership: the coordinator's. Errors: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "coordinator/state/model.h"

namespace ckpt::coordinator {

struct GpuFault {
  std::string reason;                // the finding's reason
  std::int64_t time_ms = 0;          // the finding's Unix time; 0: not known
  bool cordoned = false;             // true if the health policy has cordoned the GPU
  bool forbids_staying = false;      // no job may stay on the GPU
  bool forbids_reading = false;      // the GPU's memory may not be read either
  std::int64_t closed_until_ms = 0;  // Unix time until which the GPU accepts no new job, cordoned or not
  // Returns whether the GPU is unreliable, so that operators must be alerted.
  [[nodiscard]] bool is_unhealthy() const { return cordoned || forbids_staying; }
};

class GpuFaults {
 public:
  virtual ~GpuFaults() = default;
  // Returns the fault of the GPU, or nullopt if no fault is known.
  [[nodiscard]] virtual std::optional<GpuFault> find(const Place& place) const = 0;
};

// Returns the fault as text for lists and refusals: "Xid 79 (cordoned)", "suspect until 10:58:25Z: Xid 94".
[[nodiscard]] std::string to_text(const GpuFault& fault);

}  // namespace ckpt::coordinator
