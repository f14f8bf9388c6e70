// SPDX-License-Identifier: Apache-2.0
// A wait for a change of jobs, nodes or checkpoint stores.
// Threads: one io_context on one thread. Errors: none.
#pragma once

#include <chrono>

#include "coordinator/fleet/jobs.h"

namespace ckpt::coordinator {

// Returns at the next change of a job, node or checkpoint store, or after one second.
inline control::Task<> wait_for_change(JobTable& jobs) {
  constexpr std::chrono::seconds kPollInterval{1};
  co_await jobs.changed().wait_until(std::chrono::steady_clock::now() + kPollInterval);
}

}  // namespace ckpt::coordinator
