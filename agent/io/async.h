// SPDX-License-Identifier: Apache-2.0
// Small helpers of the agent's event loop: wake-ups between coroutines, and work on a thread pool
// (offload.h).
// Threads: the event loop. No function fails.
#pragma once

#include <chrono>
#include <list>
#include <utility>

#include "libckpt/net/control/asio.h"
#include "libckpt/net/control/offload.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::agent {

namespace asio = boost::asio;
using control::offload;
using control::Task;
using Milliseconds = std::chrono::milliseconds;

// A one-shot or repeated wake-up between coroutines of the loop.
class AsyncEvent {
 public:
  explicit AsyncEvent(const asio::any_io_executor& executor) : timer_(executor) {}
  void notify() {
    raised_ = true;
    timer_.cancel();
  }
  // Waits for a notification until the time `until`. A notification before the call counts, too. Returns true
  // if the event was notified. Only one coroutine at a time may wait on an AsyncEvent.
  Task<bool> wait(std::chrono::steady_clock::time_point until);

 private:
  asio::steady_timer timer_;
  bool raised_ = false;
};

// Lets coroutines of the loop enter a section one after the other, in the order of their arrival.
class AsyncMutex {
 public:
  explicit AsyncMutex(asio::any_io_executor executor) : executor_(std::move(executor)) {}
  class Held {
   public:
    explicit Held(AsyncMutex* turn) : turn_(turn) {}
    Held(Held&& other) noexcept : turn_(std::exchange(other.turn_, nullptr)) {}
    Held& operator=(Held&&) = delete;
    ~Held() {
      if (turn_ != nullptr) turn_->leave();
    }

   private:
    AsyncMutex* turn_;
  };
  Task<Held> acquire();

 private:
  // Passes the turn to the coroutine that has waited longest. taken_ stays set.
  void leave();
  asio::any_io_executor executor_;
  std::list<AsyncEvent*> waiting_;
  bool taken_ = false;
};

}  // namespace ckpt::agent
