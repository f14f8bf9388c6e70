// SPDX-License-Identifier: Apache-2.0
// The helper's side of the rehearsal (rehearsal.h). It creates a process in a separate PID namespace, dumps
// it and restores it with the calls that a move makes, and measures the times. The last line of output is
// {"rehearsal": …}, or the reason why there is no result.
// Threads: one loop. A stream of pages has its own thread. Ownership: nothing that it creates outlives it.
// The kernel kills the processes, and owners remove their folders. Errors: the exit status, 0 or 1.
#pragma once

#include <cstdint>
#include <string>

namespace ckpt::agent {

inline constexpr char kRehearsedFlag[] = "--rehearsed-process";
inline constexpr char kRehearsedManyFlag[] = "--rehearsed-many";

// Runs the rehearsal. `home` is the agent's folder. An empty `criu` means that the function searches for
// CRIU.
int run_rehearsal(const std::string& home, const std::string& criu);

// The numbers of threads, descriptors and mappings from which their cost is measured
// (RehearsedProcess::dump_items).
inline constexpr int kRehearsedThreads = 256;
inline constexpr int kRehearsedDescriptors = 512;
inline constexpr int kRehearsedMappings = 4096;

// Runs as the rehearsed process. Its child process has `bytes` of private memory and, with `many`, the
// rehearsed numbers of threads, descriptors and mappings. The child closes descriptor 3 when everything
// exists, and then keeps running.
int be_rehearsed(std::uint64_t bytes, bool many);

}  // namespace ckpt::agent
