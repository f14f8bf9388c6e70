// SPDX-License-Identifier: Apache-2.0
// The rules of protection other than its schedule: the result of a snapshot, and the cost of snapshots. Pure.
// Threads: one. Errors: none.
#pragma once

#include <optional>
#include <string>

#include "coordinator/state/model.h"
#include "libckpt/base/result.h"

namespace ckpt::coordinator {

// Returns the protection with the result of its last snapshot.
[[nodiscard]] Protection after_snapshot(Protection protection, const Result<void>& captured);
// Returns true if each snapshot of the job also checkpoints and restores the CUDA context in place (a
// checkpoint of the released context).
[[nodiscard]] bool pays_for_host_state(const Job& job);
// Returns true if snapshots at that interval would pause the job too often. A user may override this.
[[nodiscard]] bool is_too_often(const Job& job, std::int64_t every_ms);
// Returns the expected pause of the job's next snapshot in milliseconds, or nullopt if it is not known.
[[nodiscard]] std::optional<double> pause_of_last(const Job& job);

}  // namespace ckpt::coordinator
