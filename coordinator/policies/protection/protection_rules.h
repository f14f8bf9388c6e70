// SPDX-License-Identifier: Apache-2.0
// The rules of protection beside its schedule: how a snapshot went, what it costs, when a set of images is due. Pure.
// Threads: one. Errors: none.
#pragma once

#include <optional>
#include <string>

#include "coordinator/state/model.h"
#include "libckpt/base/result.h"

namespace ckpt::coordinator {

// Returns the protection with what is known of its last snapshot.
[[nodiscard]] Protection after_snapshot(Protection protection, const Result<void>& taken);
// Returns true if the next set of images is due: an interval has passed, also after one that failed.
[[nodiscard]] bool is_set_due(const Protection& protection, std::int64_t now_ms);
// Returns true if a snapshot costs the job a thin checkpoint and restore in place.
[[nodiscard]] bool pays_for_host_state(const Job& job);
// Returns true if snapshots at that interval stop the job too often, unless the user insists.
[[nodiscard]] bool is_too_often(const Job& job, std::int64_t every_ms);
// Returns how long a snapshot is expected to stop the job; nullopt: not known.
[[nodiscard]] std::optional<double> pause_of_last(const Job& job);

}  // namespace ckpt::coordinator
