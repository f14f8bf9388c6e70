// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/control/offload.h"

namespace ckpt::control {

Task<> call_on(asio::thread_pool& pool, void (*call)(void*), void* subject) {
  auto executor = co_await asio::this_coro::executor;
  co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(
      [&](auto handler) {
        // The guard: the loop must not run out of work while the pool has some of it.
        asio::post(pool, [executor, call, subject, guard = asio::make_work_guard(executor),
                          handler = std::move(handler)]() mutable {
          call(subject);
          asio::post(executor, std::move(handler));
        });
      },
      asio::use_awaitable);
}

}  // namespace ckpt::control
