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

// Runs `call(subject)` on the pool and comes back to the loop. It is the part of offload that no type changes,
// so that it is compiled once.
Task<> call_on(asio::thread_pool& pool, void (*call)(void*), void* subject);

// Runs `function` (which must not throw) on the pool and comes back to the loop with its value. Give it one
// that has a name: g++ 12 destroys what a temporary one holds twice.
template <class Function>
Task<std::invoke_result_t<Function>> offload(asio::thread_pool& pool, Function function) {
  std::optional<std::invoke_result_t<Function>> value;
  // The function, with all that it holds, is destroyed on the pool, too.
  auto call = [&value, &function] {
    Function taken = std::move(function);
    value.emplace(taken());
  };
  co_await call_on(
      pool, [](void* subject) { (*static_cast<decltype(call)*>(subject))(); }, &call);
  co_return std::move(*value);
}

}  // namespace ckpt::control
