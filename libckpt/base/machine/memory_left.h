// SPDX-License-Identifier: Apache-2.0
// The memory that this process may still take before the kernel kills a process. It is the minimum of the
// machine's available memory and the remaining memory of its own control groups (version 2).
// Threads: any. Errors: none; a limit that cannot be read is ignored.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace ckpt {

inline constexpr std::uint64_t kMemoryUnknown = std::numeric_limits<std::uint64_t>::max();

// Returns the bytes that this process may still take, or kMemoryUnknown if nothing can be read. `proc` and
// `groups` are the mount points of procfs and of the control groups' file system.
[[nodiscard]] std::uint64_t memory_left(const std::string& proc = "/proc",
                                        const std::string& groups = "/sys/fs/cgroup");

}  // namespace ckpt
