// SPDX-License-Identifier: Apache-2.0
// The part of a moved adopted job's pause that a managed job (`gpumigrate run`) would not have had. It is the
// copies of device memory. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "coordinator/state/report.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::coordinator {

struct ManagedRunEstimate {
  std::uint64_t device_bytes = 0;
  // The most downtime that device memory costs: the driver's saving and restoring, and its share of the dump,
  // transfer and restore of the process's image. The time for a thin context and a small dump remains in any
  // move, and is not known separately.
  double device_ms = 0;
  // The bound of a live move (docs/design.md §5) without its scan, whose rate cannot be measured on memory
  // that is not ours: quiesce + commit + resume, had nothing been written since the last round; and had all
  // of it been, at the rate of the image's transfer (0: not measured).
  double bound_ms = 0;
  double bound_all_dirty_ms = 0;
};

// nullopt for a job that was not adopted.
[[nodiscard]] std::optional<ManagedRunEstimate> compute_managed_run_estimate(const wire::SourceReport& source,
                                                                             const Downtime& downtime);

}  // namespace ckpt::coordinator
