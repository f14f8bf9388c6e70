// SPDX-License-Identifier: Apache-2.0
// The program as a rank of its job: the functions that the cuInit hook calls.
// Threads: any. Errors: none; a process without a session runs as if it were not a job, and cannot be moved.
#pragma once

namespace ckpt::shim {

// Without a keeper in the environment (CKPT_SOCKET), both functions do nothing. A second call also does
// nothing.

// Prepares the process after the real cuInit has succeeded: forked children will close the driver's files.
void prepare_rank() noexcept;
// Connects to the keeper, once the process has a context.
void start_rank() noexcept;

}  // namespace ckpt::shim
