// SPDX-License-Identifier: Apache-2.0
// Creates a userfaultfd over another process's memory. Only a thread of that process can create one. The
// process's first thread is therefore stopped with ptrace, creates the userfaultfd, and continues where it
// was (userfaultfd(2), ptrace(2), pidfd_getfd(2)). The process keeps no descriptor of the userfaultfd, and no
// memory of the process is changed. The process is stopped for the time of a few system calls. If the calling
// process exits in that time, the kernel kills the traced process, which must not continue with foreign
// registers. A SIGSTOP that arrives in that time stops the process afterwards.
// Threads: any. The calling thread blocks for milliseconds (use offload()). If a process does not stop in
// time, a dedicated thread waits for the process without a limit. The process then continues where it was.
// Errors: kRefused for a process that is stopped or traced by another program, kTimedOut, kNotSupported
// (processor, kernel), errno.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// Time limits and a hook, which tests change.
struct TraceOptions {
  std::chrono::milliseconds limit{2000};         // time limit for a thread to stop
  std::chrono::milliseconds limit_inside{2000};  // time limit for a stop while the thread's registers are not
                                                 // its own
  std::function<void()> inside;  // hook that is called when the thread's registers first differ from its own
};

Result<UniqueFd> userfaultfd_of(pid_t pid, const TraceOptions& options = {});

}  // namespace ckpt::agent::host
