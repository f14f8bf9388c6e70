// SPDX-License-Identifier: Apache-2.0
// Saving a process's GPU context by a program of its own (`gpumigrate-context --save PID`), since a keeper
// makes no driver call. withstands() returns whether a signal would kill a process with its context.
// Threads: any. Ownership: the saver is a child of the caller, which reaps it. Errors: kIo, kNotSupported.
#pragma once

#include <sys/types.h>

#include <string>

#include "libckpt/base/result.h"

namespace ckpt::keeper {

// Starts the saver, whose standard error is this process's. It ends with 0 once the context is saved. It runs
// in this process's PID namespace, and so do all later children. kNotSupported: this process may not leave
// the job's PID namespace.
Result<pid_t> start_saver(const std::string& program, pid_t rank);

// True if the signal does not end the process by itself: it has a handler for it, ignores it, or waits for
// it.
[[nodiscard]] bool withstands(pid_t pid, int signal);

}  // namespace ckpt::keeper
