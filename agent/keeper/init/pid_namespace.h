// SPDX-License-Identifier: Apache-2.0
// The keeper's side of a job in a PID namespace of its own (see init.cc): making the namespace, and reading
// how the program ended.
// Threads: one that forks. Errors: kNotSupported without the right to make namespaces (root), kIo.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "libckpt/base/result.h"

namespace ckpt::keeper {

// Forks; the child is process 1 of a new PID namespace. It must exec gpumigrate-init without delay:
// its parent's id is 0 there, and fork handlers have not run.
Result<pid_t> fork_into_pid_namespace();

// Returns how the program ended, as a wait status, from that of its init. Call it before `init` is reaped
// (waitid with WNOWAIT tells when): a signal that killed the program is in the init's name.
[[nodiscard]] int program_status(pid_t init, int init_status);

// Returns the program itself, child of `init`, by its number in this namespace; 0 if there is none.
[[nodiscard]] pid_t program_of(pid_t init);

}  // namespace ckpt::keeper
