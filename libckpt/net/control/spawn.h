// SPDX-License-Identifier: Apache-2.0
// Starts a coroutine whose failure is never silent. An exception that leaves it is logged with its name and
// handed to `on_failure`; asio::detached, which drops it, is not used in this project.
// Threads: any; the coroutine runs on `executor`.
#pragma once

#include <functional>
#include <string>

#include "libckpt/base/error.h"
#include "libckpt/net/control/asio.h"

namespace ckpt::control {

void spawn(asio::any_io_executor executor, std::string name, Task<> task,
           std::function<void(Error)> on_failure = {});

}  // namespace ckpt::control
