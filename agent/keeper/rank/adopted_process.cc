// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/rank/adopted_process.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "agent/keeper/rank/descent.h"

namespace ckpt::keeper {

Result<UniqueFd> open_process(pid_t pid, std::uint64_t start_ticks) {
  UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process && errno != ESRCH) return Error::from_errno("Watching process " + std::to_string(pid));
  // After it was opened: the number cannot go to another any more without the descriptor telling the end.
  if (process && start_ticks_of(pid) == start_ticks) return process;
  return Error(ErrorCode::kNotFound, "Process " + std::to_string(pid) + " has ended");
}

}  // namespace ckpt::keeper
