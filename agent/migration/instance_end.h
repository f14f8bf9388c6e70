// SPDX-License-Identifier: Apache-2.0
// Classifies the exit of an instance for the moves that it takes part in, and kills an instance reliably.
// Threads: any; end_for_certain() the event loop. Errors: none.
#pragma once

#include <sys/wait.h>

#include <memory>

#include "agent/jobs/job.h"
#include "libckpt/inprocess/local/messages.h"

namespace ckpt::agent {

// Checks whether the instance exited with code 0, or was ordered to exit. Such an instance must not run
// again.
[[nodiscard]] inline bool is_clean_end(const local::RankExited& end) noexcept {
  return end.ended_by_keeper != 0 || (WIFEXITED(end.wait_status) && WEXITSTATUS(end.wait_status) == 0);
}

// Kills the instance, and returns once it is proven to have ended. Null means that there is no instance.
inline Task<> end_for_certain(std::shared_ptr<Job> job) {
  while (job && !job->ended()) {
    co_await job->destroy();
    co_await job->known();  // a keeper that survives the kill is queried until its state is known
  }
}

}  // namespace ckpt::agent
