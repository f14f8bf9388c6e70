// SPDX-License-Identifier: Apache-2.0
// An event for which several coroutines of the loop wait, each until its own deadline.
// Threads: the event loop. Ownership: shared with the waiting coroutines, which may outlive the other owners.
// Errors: none.
#pragma once

#include <cstddef>
#include <list>
#include <memory>

#include "agent/io/async.h"

namespace ckpt::agent {

class Waiters : public std::enable_shared_from_this<Waiters> {
 public:
  explicit Waiters(asio::any_io_executor executor) : executor_(std::move(executor)) {}
  // Waits for notify_all() until the deadline. Returns true if it was called in time. The entry of the wait
  // is removed afterwards, even if the waiting coroutine is destroyed.
  Task<bool> wait(std::chrono::steady_clock::time_point until);
  // Wakes every coroutine that waits at the time of the call.
  void notify_all();
  [[nodiscard]] std::size_t count() const noexcept { return waiting_.size(); }

 private:
  asio::any_io_executor executor_;
  std::list<AsyncEvent*> waiting_;
};

}  // namespace ckpt::agent
