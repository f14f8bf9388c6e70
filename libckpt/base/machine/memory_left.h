// SPDX-License-Identifier: Apache-2.0
// How much memory this process may still take without the kernel killing anything. That is the least of what
// the machine has available and what its own control groups (version 2) leave. Threads: any. Errors: none; a
// limit that cannot be read is none.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace ckpt {

inline constexpr std::uint64_t kMemoryUnknown = std::numeric_limits<std::uint64_t>::max();

// In bytes; kMemoryUnknown where nothing can be read. `proc` and `groups`: where these file systems are.
[[nodiscard]] std::uint64_t memory_left(const std::string& proc = "/proc",
                                        const std::string& groups = "/sys/fs/cgroup");

}  // namespace ckpt
