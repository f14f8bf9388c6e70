// SPDX-License-Identifier: Apache-2.0
// A process that was running before its keeper, so it is not a child of the keeper. The keeper watches it
// through a process descriptor.
// Threads: none. Ownership: none. The process stays its own parent's child. Errors: kNotFound if the process
// has exited, or if its number now belongs to a different process.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::keeper {

// The status for a process that is not a child of the keeper, because its exit status is unknown. No wait
// status has this value.
inline constexpr int kUnknownStatus = -1;

// Returns a descriptor that is readable when the process has exited. `start_ticks` is field 22 of
// /proc/PID/stat.
Result<UniqueFd> open_process(pid_t pid, std::uint64_t start_ticks);

}  // namespace ckpt::keeper
