// SPDX-License-Identifier: Apache-2.0
// Runs coroutines at once and returns when each of them has ended. A caller of several peers waits as long as
// the slowest of them, and not as long as all that are silent.
// Threads: `executor` runs on one thread, and the caller is on it. Ownership: what the tasks refer to outlives the
// call. Errors: none; a task keeps its result itself, and one that throws is logged (spawn.h) and has ended.
#pragma once

#include <string>
#include <vector>

#include "libckpt/net/control/asio.h"

namespace ckpt::control {

Task<> at_once(asio::any_io_executor executor, std::string name, std::vector<Task<>> tasks);

}  // namespace ckpt::control
