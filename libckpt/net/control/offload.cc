// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/control/offload.h"

namespace ckpt::control {

// Clang 14's static analyzer loses track of the coroutine frame inside Asio, and then reports false errors in
// Asio's code.
#ifndef __clang_analyzer__

Task<> call_on(asio::thread_pool& pool, void (*call)(void*), void* subject) {
  return asio::async_initiate<const asio::use_awaitable_t<>, void()>(
      [&pool, call, subject](auto handler) {
        const auto executor = asio::get_associated_executor(handler);  // the executor of the caller's loop
        // The guard keeps the loop from running out of work while the pool runs the call.
        asio::post(pool, [executor, call, subject, guard = asio::make_work_guard(executor),
                          handler = std::move(handler)]() mutable {
          call(subject);
          asio::post(executor, std::move(handler));
        });
      },
      asio::use_awaitable);
}

#endif

}  // namespace ckpt::control
