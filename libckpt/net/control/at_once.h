// SPDX-License-Identifier: Apache-2.0
// Runs coroutines concurrently and returns when all of them have ended. A caller that queries several peers
// waits for the slowest peer only. It does not wait for the sum of all silent peers.
// Threads: `executor` runs on one thread, and the caller runs on that thread. Ownership: objects that the
// tasks refer to must outlive the call. Errors: none. A task stores its own result. A task that throws is
// logged (spawn.h) and counts as ended.
#pragma once

#include <string>
#include <vector>

#include "libckpt/net/control/asio.h"

namespace ckpt::control {

Task<> at_once(asio::any_io_executor executor, std::string name, std::vector<Task<>> tasks);

}  // namespace ckpt::control
