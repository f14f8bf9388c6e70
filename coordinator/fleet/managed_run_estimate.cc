// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/managed_run_estimate.h"

#include <algorithm>

namespace ckpt::coordinator {

std::optional<ManagedRunEstimate> compute_managed_run_estimate(const wire::SourceReport& source,
                                                               const Downtime& downtime) {
  if (source.context_bytes == 0) return std::nullopt;
  ManagedRunEstimate out;
  out.device_bytes = source.context_bytes;
  const auto bytes = static_cast<double>(source.context_bytes);
  const auto image = static_cast<double>(source.host_bytes);
  const double share = image <= 0 ? 0 : std::min(1.0, bytes / image);
  out.device_ms = downtime.context + share * (downtime.host + downtime.final_copy);
  out.bound_ms = downtime.quiesce + downtime.commit + downtime.restore + downtime.resume;
  if (image > 0 && downtime.final_copy > 0)
    out.bound_all_dirty_ms = out.bound_ms + downtime.final_copy * bytes / image;
  return out;
}

}  // namespace ckpt::coordinator
