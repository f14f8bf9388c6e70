// SPDX-License-Identifier: Apache-2.0
// True if something may write into the memory of a process without its page tables. A MemoryWatch does not
// find such a write. Threads: any; it reads many files of /proc (offload()). No function fails: what cannot
// be read counts as yes.
#pragma once

#include <sys/types.h>

namespace ckpt::agent::host {

[[nodiscard]] bool may_be_written_unseen(pid_t pid);

}  // namespace ckpt::agent::host
