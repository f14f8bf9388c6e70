// SPDX-License-Identifier: Apache-2.0
// Whether something may write into the memory of a process without its page tables. Such a write is not found by
// a MemoryWatch. Threads: any; it reads many files of /proc (offload()). No function fails: what cannot be read
// counts as yes.
#pragma once

#include <sys/types.h>

namespace ckpt::agent::host {

[[nodiscard]] bool may_be_written_unseen(pid_t pid);

}  // namespace ckpt::agent::host
