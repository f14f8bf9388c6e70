// SPDX-License-Identifier: Apache-2.0
// Classifies the end of an instance for the moves that it takes part in.
// Threads: any. Errors: none.
#pragma once

#include <sys/wait.h>

#include "libckpt/inprocess/local/messages.h"

namespace ckpt::agent {

// Checks whether the instance exited with code 0, or was ordered to end. Such an instance must not run again.
[[nodiscard]] inline bool is_clean_end(const local::RankExited& end) noexcept {
  return end.ended_by_keeper != 0 || (WIFEXITED(end.wait_status) && WEXITSTATUS(end.wait_status) == 0);
}

}  // namespace ckpt::agent
