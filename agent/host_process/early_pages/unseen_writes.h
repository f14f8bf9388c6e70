// SPDX-License-Identifier: Apache-2.0
// Checks whether something may write into the memory of a process without using its page tables. A
// MemoryWatch does not find such a write.
// Threads: any. The function reads many files of /proc (use offload()). No function fails. If a file cannot
// be read, the result is true.
#pragma once

#include <sys/types.h>

namespace ckpt::agent::host {

[[nodiscard]] bool may_be_written_unseen(pid_t pid);

}  // namespace ckpt::agent::host
