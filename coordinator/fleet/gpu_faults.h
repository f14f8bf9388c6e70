// SPDX-License-Identifier: Apache-2.0
// Faults of a GPU beyond what its node reports of it now: findings of the last minutes, and the health
// policy's cordons. The interface of health for placement, lists and metrics.
// Threads: one io_context on one thread. Ownership: the coordinator's. Errors: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "coordinator/state/model.h"

namespace ckpt::coordinator {

struct GpuFault {
  std::string reason;                // the finding's
  std::int64_t time_ms = 0;          // Unix time; 0: not known
  bool cordoned = false;             // by health
  bool forbids_staying = false;      // no job may stay there
  bool forbids_reading = false;      // nor may its memory be read
  std::int64_t closed_until_ms = 0;  // Unix time; until then it takes no new job, cordoned or not
  // It is no GPU to rely on: a page is due.
  [[nodiscard]] bool is_unhealthy() const { return cordoned || forbids_staying; }
};

class GpuFaults {
 public:
  virtual ~GpuFaults() = default;
  // nullopt: nothing speaks against it.
  [[nodiscard]] virtual std::optional<GpuFault> find(const Place& place) const = 0;
};

// "Xid 79 (cordoned)", "suspect until 10:58:25Z: Xid 94": for lists and refusals.
[[nodiscard]] std::string to_text(const GpuFault& fault);

}  // namespace ckpt::coordinator
