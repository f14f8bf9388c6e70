// SPDX-License-Identifier: Apache-2.0
// The keeper's side of a job with its own PID namespace (see init.cc). The functions create the namespace and
// read how the program exited.
// Threads: one that forks. Errors: kNotSupported without the right to create namespaces (root). kIo.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "libckpt/base/result.h"

namespace ckpt::keeper {

// Forks. The child is process 1 of a new PID namespace and must exec gpumigrate-init without delay. The id of
// its parent is 0 in that namespace, and fork handlers have not run.
Result<pid_t> fork_into_pid_namespace();

// Returns the wait status of the program, from the wait status of its init. Call this function before `init`
// is reaped (wait with waitid and WNOWAIT). If a signal killed the program, the signal is in the init's name.
[[nodiscard]] int program_status(pid_t init, int init_status);

// Returns the id of the program, a child of `init`, in this namespace. Returns 0 if there is none.
[[nodiscard]] pid_t program_of(pid_t init);

}  // namespace ckpt::keeper
