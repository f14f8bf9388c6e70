// SPDX-License-Identifier: Apache-2.0
// Functions that run blocking work of an event loop on a thread pool.
// Threads: call them on the loop; only the given function runs on the pool. Errors: none.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include "libckpt/net/control/asio.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::control {

// Runs `call(subject)` on the pool and resumes on the loop. This part of offload depends on no type, so it is
// compiled once.
Task<> call_on(asio::thread_pool& pool, void (*call)(void*), void* subject);

// Runs `function` (which must not throw) on the pool and resumes on the loop with its value. Pass a named
// function: g++ 12 destroys the captures of a temporary twice.
template <class Function>
Task<std::invoke_result_t<Function>> offload(asio::thread_pool& pool, Function function) {
  std::optional<std::invoke_result_t<Function>> value;
  // The function and all its captures are destroyed on the pool, too.
  auto call = [&value, &function] {
    Function owned = std::move(function);
    value.emplace(owned());
  };
  co_await call_on(
      pool, [](void* subject) { (*static_cast<decltype(call)*>(subject))(); }, &call);
  co_return std::move(*value);
}

}  // namespace ckpt::control
