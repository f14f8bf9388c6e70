// SPDX-License-Identifier: Apache-2.0
// The program as a rank of its job: what the cuInit hook calls, and nothing else. Threads: any. Errors: none;
// a process that gets no session runs on as if it were not a job, and cannot be moved.
#pragma once

namespace ckpt::shim {

// Without a keeper in the environment (CKPT_SOCKET) neither does anything, nor does a second call.

// After the real cuInit has succeeded: forked children let go of the driver's files.
void prepare_rank() noexcept;
// The process has a context: connects to the keeper.
void start_rank() noexcept;

}  // namespace ckpt::shim
