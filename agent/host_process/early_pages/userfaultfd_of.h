// SPDX-License-Identifier: Apache-2.0
// A userfaultfd over another process's memory. Only a thread of that process can make one. So its first
// thread is stopped with ptrace, makes it, and goes on where it was (userfaultfd(2), ptrace(2),
// pidfd_getfd(2)). The process keeps no descriptor of it. Nothing in the process's memory is changed. It is
// stopped for the time of a few system calls. Should this process end in that time, the kernel ends the other
// one: it must not go on with registers that are not its own. A SIGSTOP that comes in that time stops it
// afterwards.
// Threads: any; the calling thread blocks for milliseconds (offload()). A process that does not stop in time
// is waited for by a thread made for that, however long it takes. Then it goes on where it was.
// Errors: kRefused for a process that is stopped or traced by something else, kTimedOut, kNotSupported
// (processor, kernel), errno.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// Limits and a hook, changed by tests.
struct TraceOptions {
  std::chrono::milliseconds most{2000};         // the time for a thread to stop
  std::chrono::milliseconds most_inside{2000};  // the same while its registers are not its own
  std::function<void()> inside;                 // called at the first moment when they are not
};

Result<UniqueFd> userfaultfd_of(pid_t pid, const TraceOptions& options = {});

}  // namespace ckpt::agent::host
