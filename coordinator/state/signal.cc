// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/signal.h"

namespace ckpt::coordinator {

control::Task<> Signal::wait_until(std::chrono::steady_clock::time_point deadline) {
  auto waiters = waiters_;
  control::asio::steady_timer timer(executor_, deadline);
  const Registration registration(*waiters, timer);
  co_await timer.async_wait(control::kTuple);
}

}  // namespace ckpt::coordinator
