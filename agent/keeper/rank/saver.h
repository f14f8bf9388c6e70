// SPDX-License-Identifier: Apache-2.0
// Saving a process's GPU context by a program of its own (`gpumigrate-context --save PID`), since a keeper
// makes no driver call. withstands() returns whether a signal would kill a process with its context.
// Threads: any. Ownership: the saver is a child of the caller, which reaps it. Errors: kIo, kNotSupported.
#pragma once

#include <sys/types.h>

#include <string>

#include "libckpt/base/result.h"

namespace ckpt::keeper {

// Its errors go where this process's go. It ends with 0 once the context is saved. It is in this process's
// PID namespace, and so are all later children: kNotSupported without the right to leave the one that the job
// was given.
Result<pid_t> start_saver(const std::string& program, pid_t rank);

// Whether the signal does not end the process by itself: it has a handler for it, ignores it, or waits for
// it.
[[nodiscard]] bool withstands(pid_t pid, int signal);

}  // namespace ckpt::keeper
