// SPDX-License-Identifier: Apache-2.0
// The time limit of a move, as set by the move's user. Pure.
// Threads: any. Errors: none.
#pragma once

#include <algorithm>
#include <chrono>

#include "coordinator/state/model.h"

namespace ckpt::coordinator {

// Returns how long the timer of the limit must run if it is armed now. The limit counts from the begin of the
// move, also across a restart of the coordinator. If the limit has passed, the nodes get `grace` to answer.
[[nodiscard]] inline std::chrono::milliseconds left_of_limit(const Migration& move, std::int64_t now_ms,
                                                             std::chrono::milliseconds grace) {
  const std::chrono::milliseconds limit(move.timeout_ms);
  const std::chrono::milliseconds left(move.started_ms + move.timeout_ms - now_ms);
  return std::min(left.count() > 0 ? left : grace, limit);
}

}  // namespace ckpt::coordinator
