// SPDX-License-Identifier: Apache-2.0
// Runs a program to its end on the event loop. Threads: the loop. Ownership: when the time is over the
// process is killed, with its session where it has one of its own. Errors: kNotFound or kIo if it cannot be
// started, kTimedOut.
#pragma once

#include "agent/io/process.h"

namespace ckpt::agent::host {

// Returns its wait status.
Task<Result<int>> run_program(ProcessSpec spec, Milliseconds timeout);

}  // namespace ckpt::agent::host
