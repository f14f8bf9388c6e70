// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/control/offload.h"

namespace ckpt::control {

#ifndef __clang_analyzer__  // clang 14 loses the frame of a coroutine inside of Asio: it reports Asio's own code

Task<> call_on(asio::thread_pool& pool, void (*call)(void*), void* subject) {
  return asio::async_initiate<const asio::use_awaitable_t<>, void()>(
      [&pool, call, subject](auto handler) {
        const auto executor = asio::get_associated_executor(handler);  // the caller's loop
        // The guard: the loop must not run out of work while the pool has some of it.
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
