// SPDX-License-Identifier: Apache-2.0
// A process that CRIU restored lives in a time namespace. Its clocks go on from where they stood at the dump,
// so its CLOCK_BOOTTIME is behind the node's. Times of a rank are brought to the node's clock with this.
// Threads: any. Errors: kIo, kNotFound for a process that is gone.
#pragma once

#include <sys/types.h>

#include <string_view>

#include "libckpt/base/clock.h"
#include "libckpt/base/result.h"

namespace ckpt::keeper {

// The node's CLOCK_BOOTTIME minus the process's. 0 outside of time namespaces, and on kernels
// without them.
Result<Nanos> rank_clock_lag(pid_t pid);

// Reads the lag from the text of /proc/PID/timens_offsets ("boottime SECONDS NANOSECONDS"). 0 if there is no
// such line.
[[nodiscard]] Nanos lag_of_offsets(std::string_view text);

}  // namespace ckpt::keeper
