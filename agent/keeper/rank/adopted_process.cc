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
  if (!process && errno != ESRCH) return Error::from_errno("Cannot watch process " + std::to_string(pid));
  // The start time is checked after the descriptor was opened. From then on, the descriptor reports the exit
  // before the number can be reused.
  if (process && start_ticks_of(pid) == start_ticks) return process;
  return Error(ErrorCode::kNotFound, "Process " + std::to_string(pid) + " has ended");
}

}  // namespace ckpt::keeper
