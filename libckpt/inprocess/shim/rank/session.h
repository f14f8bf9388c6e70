// SPDX-License-Identifier: Apache-2.0
// The program as a rank of its job: what the cuInit hook calls, and nothing else. Threads: any. Errors: none;
// a process that gets no session runs on as if it were not a job, and cannot be moved.
#pragma once

namespace ckpt::shim {

// After the real cuInit has succeeded; only the first call does something. Without a keeper in the
// environment (CKPT_SOCKET) nothing happens.
void start_rank() noexcept;

}  // namespace ckpt::shim
