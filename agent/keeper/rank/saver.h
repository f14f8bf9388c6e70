// SPDX-License-Identifier: Apache-2.0
// Saves a process's GPU context through a separate program (`gpumigrate-context --save PID`), because a
// keeper makes no driver call. withstands() checks whether a signal would kill a process with its context.
// Threads: any. Ownership: the saver is a child of the caller, which reaps it. Errors: kIo, kNotSupported.
#pragma once

#include <sys/types.h>

#include <string>

#include "libckpt/base/result.h"

namespace ckpt::keeper {

// Starts the saver, whose standard error is this process's. The saver exits with 0 when the context is saved.
// The saver runs in this process's PID namespace, and so do all later children. kNotSupported means that this
// process may not leave the job's PID namespace.
Result<pid_t> start_saver(const std::string& program, pid_t rank);

// Checks whether the process survives the signal. The process then has a handler for the signal, ignores the
// signal, or waits for it.
[[nodiscard]] bool withstands(pid_t pid, int signal);

}  // namespace ckpt::keeper
