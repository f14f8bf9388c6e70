// SPDX-License-Identifier: Apache-2.0
// The time that work on a process's memory may take before it counts as stuck. Threads: any. No errors.
#pragma once

#include <chrono>
#include <cstdint>

namespace ckpt::agent::host {

inline constexpr std::chrono::milliseconds kStuckAfter{60000};
// A rate far below that of any machine: dumping, restoring and first touches on a small machine short of
// memory have come down to 40 MiB/s.
inline constexpr std::uint64_t kMinBytesPerSecond = std::uint64_t{16} << 20;

[[nodiscard]] constexpr std::chrono::milliseconds time_limit(std::uint64_t bytes,
                                                             std::chrono::milliseconds least = kStuckAfter) {
  return least + std::chrono::milliseconds(static_cast<std::int64_t>(bytes / (kMinBytesPerSecond / 1000)));
}

}  // namespace ckpt::agent::host
