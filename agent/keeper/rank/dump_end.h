// SPDX-License-Identifier: Apache-2.0
// Cleans up after a dump whose program was killed. CRIU traces the processes that it dumps. The kernel keeps
// a killed process as long as a tracer holds it, and CRIU waits for answers of processes that were killed.
// Therefore neither would exit, and the keeper would never see its program's exit.
// Threads: none. Ownership: none. Errors: none. A process that has exited in the meantime is not a tracer.
#pragma once

#include <sys/types.h>

namespace ckpt::keeper {

// Sends SIGKILL to each process that traces `root` or one of its descendants, but never to the caller.
void kill_tracers_of(pid_t root);

}  // namespace ckpt::keeper
