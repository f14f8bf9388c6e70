// SPDX-License-Identifier: Apache-2.0
// The time that work on a process's memory may take before the work counts as stuck.
// Threads: any. Errors: none.
#pragma once

#include <chrono>
#include <cstdint>

namespace ckpt::agent::host {

inline constexpr std::chrono::milliseconds kStuckAfter{60000};
// A rate far below that of any machine. Dumps, restores and first accesses have slowed to 40 MiB/s on a small
// machine with little free memory.
inline constexpr std::uint64_t kMinBytesPerSecond = std::uint64_t{16} << 20;

[[nodiscard]] constexpr std::chrono::milliseconds time_limit(std::uint64_t bytes,
                                                             std::chrono::milliseconds least = kStuckAfter) {
  return least + std::chrono::milliseconds(static_cast<std::int64_t>(bytes / (kMinBytesPerSecond / 1000)));
}

}  // namespace ckpt::agent::host
