// SPDX-License-Identifier: Apache-2.0
// An estimate of the pause time that an adopted job's move would have saved as a managed job (`gpumigrate
// run`). It covers the copies of device memory. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "coordinator/state/report.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::coordinator {

struct ManagedRunEstimate {
  std::uint64_t device_bytes = 0;
  // The most downtime that device memory causes: the driver's save and restore, and its share of the dump,
  // transfer and restore of the process image. The time for a released context and a small dump remains in
  // any move, and is not known separately.
  double device_ms = 0;
  // The lower bounds of a live move (docs/design.md §5), without the scan: its rate cannot be measured on
  // memory of an adopted job. The first is quiesce + commit + resume, if nothing was written since the last
  // round. The second is for memory that was all written, at the transfer rate of the image (0: not
  // measured).
  double bound_ms = 0;
  double bound_all_dirty_ms = 0;
};

// Returns the estimate, or nullopt for a job that was not adopted.
[[nodiscard]] std::optional<ManagedRunEstimate> compute_managed_run_estimate(const wire::SourceReport& source,
                                                                             const Downtime& downtime);

}  // namespace ckpt::coordinator
