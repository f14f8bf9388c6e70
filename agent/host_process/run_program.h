// SPDX-License-Identifier: Apache-2.0
// Runs a program to its end on the event loop. Threads: the loop. Ownership: the process is not ended when the time is over.
// Errors: kNotFound or kIo if it cannot be started, kTimedOut.
#pragma once

#include "agent/process.h"

namespace ckpt::agent::host {

// Its wait status.
Task<Result<int>> run_program(ProcessSpec spec, Milliseconds timeout);

}  // namespace ckpt::agent::host
