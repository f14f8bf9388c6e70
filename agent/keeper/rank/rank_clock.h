// SPDX-License-Identifier: Apache-2.0
// Converts times of a rank to the node's clock. A process that CRIU restored runs in a time namespace. Its
// clocks continue from their values at the dump, so its CLOCK_BOOTTIME is behind the node's.
// Threads: any. Errors: kIo. kNotFound for a process that no longer exists.
#pragma once

#include <sys/types.h>

#include <string_view>

#include "libckpt/base/clock.h"
#include "libckpt/base/result.h"

namespace ckpt::keeper {

// Returns the node's CLOCK_BOOTTIME minus the process's. The result is 0 outside time namespaces, and on
// kernels without them.
Result<Nanos> rank_clock_lag(pid_t pid);

// Reads the lag from the text of /proc/PID/timens_offsets ("boottime SECONDS NANOSECONDS"). Returns 0 if the
// text has no such line.
[[nodiscard]] Nanos lag_of_offsets(std::string_view text);

}  // namespace ckpt::keeper
