// SPDX-License-Identifier: Apache-2.0
// Runs a program until it exits, on the event loop.
// Threads: the event loop. Ownership: after the time limit the process is killed, together with its session
// if it has its own session. Errors: kNotFound or kIo if the program cannot be started. kTimedOut.
#pragma once

#include "agent/io/process.h"

namespace ckpt::agent::host {

// Runs the program and returns its wait status, in the form of waitpid(2).
Task<Result<int>> run_program(ProcessSpec spec, Milliseconds timeout);

}  // namespace ckpt::agent::host
