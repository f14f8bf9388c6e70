// SPDX-License-Identifier: Apache-2.0
// Work that would hold an event loop up, on a thread pool. Threads: the loop, but for the function, which
// runs on the pool. Nothing here fails.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include "libckpt/net/control/asio.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::control {

// Runs `function` (which must not throw) on the pool and comes back to the loop with its value. Give it one
// that has a name: g++ 12 destroys what a temporary one holds twice.
template <class Function>
Task<std::invoke_result_t<Function>> offload(asio::thread_pool& pool, Function function) {
  std::optional<std::invoke_result_t<Function>> value;
  auto executor = co_await asio::this_coro::executor;
  co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(
      [&](auto handler) {
        // The guard: the loop must not run out of work while the pool has some of it.
        asio::post(pool, [&value, executor, guard = asio::make_work_guard(executor),
                          function = std::move(function), handler = std::move(handler)]() mutable {
          value.emplace(function());
          asio::post(executor, std::move(handler));
        });
      },
      asio::use_awaitable);
  co_return std::move(*value);
}

}  // namespace ckpt::control
