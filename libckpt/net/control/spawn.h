// SPDX-License-Identifier: Apache-2.0
// Starts a coroutine whose failure is never silent. An exception that leaves the coroutine is logged with its
// name and passed to `on_failure`. This project does not use asio::detached, which drops exceptions.
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
