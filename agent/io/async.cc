// SPDX-License-Identifier: Apache-2.0
#include "agent/io/async.h"

namespace ckpt::agent {

Task<bool> AsyncEvent::wait(std::chrono::steady_clock::time_point until) {
  if (!raised_) {
    timer_.expires_at(until);
    boost::system::error_code ignored;
    co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  co_return std::exchange(raised_, false);
}

Task<AsyncMutex::Held> AsyncMutex::acquire() {
  if (std::exchange(taken_, true)) {
    AsyncEvent signal(executor_);
    waiting_.push_back(&signal);
    co_await signal.wait(std::chrono::steady_clock::time_point::max());
  }
  co_return Held(this);
}

void AsyncMutex::leave() {
  if (waiting_.empty()) {
    taken_ = false;
    return;
  }
  AsyncEvent* next = waiting_.front();
  waiting_.pop_front();
  next->notify();
}

}  // namespace ckpt::agent
