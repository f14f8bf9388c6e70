// SPDX-License-Identifier: Apache-2.0
// A userfaultfd over another process's memory. Only a thread of that process can make one. So its first thread is
// stopped with ptrace, makes it, and goes on where it was (userfaultfd(2), ptrace(2), pidfd_getfd(2)). The
// process keeps no descriptor of it. Nothing in the process's memory is changed. It is stopped for the time of
// a few system calls. Should this process end in that time, the kernel ends the other one: it must not go on
// with registers that are not its own.
// Threads: any; all is done by the calling thread, which blocks for milliseconds (offload()). Errors: kRefused
// for a process that is stopped or traced by something else, kTimedOut, kNotSupported (processor, kernel), errno.
#pragma once

#include <sys/types.h>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

Result<UniqueFd> userfaultfd_of(pid_t pid);

}  // namespace ckpt::agent::host
