// SPDX-License-Identifier: Apache-2.0
// The helper's side of the rehearsal (rehearsal.h). It makes a process in a PID namespace of its own, dumps
// it and restores it, with the calls that a move makes. It measures beside it. Prints {"rehearsal": …} as its
// last line, or why there is none.
// Threads: one loop; a stream of pages has its own. Ownership: everything that it makes ends with it:
// processes by the kernel, folders by their owners.
// Errors: the exit status, 0 or 1.
#pragma once

#include <cstdint>
#include <string>

namespace ckpt::agent {

inline constexpr char kRehearsedFlag[] = "--rehearsed-process";
inline constexpr char kRehearsedManyFlag[] = "--rehearsed-many";

// `home`: the agent's folder. `criu`: empty: it is looked for.
int run_rehearsal(const std::string& home, const std::string& criu);

// The numbers of threads, descriptors and mappings, whose cost is learnt from them
// (RehearsedProcess::dump_items).
inline constexpr int kRehearsedThreads = 256;
inline constexpr int kRehearsedDescriptors = 512;
inline constexpr int kRehearsedMappings = 4096;

// The process itself: a child of it has `bytes` of private memory, and those numbers of things with `many`.
// It closes descriptor 3 once all is there, and stays.
int be_rehearsed(std::uint64_t bytes, bool many);

}  // namespace ckpt::agent
