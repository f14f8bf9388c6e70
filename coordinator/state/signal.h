// SPDX-License-Identifier: Apache-2.0
// Wakes coroutines that wait for a change (long polls). A waiter checks its condition again after every wake.
// Threads: one io_context on one thread. Ownership: copies share one state, so a coroutine that is destroyed
// late does no harm.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "libckpt/net/control/asio.h"

namespace ckpt::coordinator {

class Signal {
 public:
  explicit Signal(control::asio::any_io_executor executor) : executor_(std::move(executor)) {}

  void notify() {
    for (auto* timer : *waiters_) timer->cancel();
    for (const auto& listener : *listeners_) listener();
  }

  // Runs within each notify(), in the midst of a change: to wake a waiter, and nothing more. For as long as
  // the signal lives.
  void subscribe(std::function<void()> listener) { listeners_->push_back(std::move(listener)); }

  // Returns after the next notify(), or at `deadline`.
  control::Task<> wait_until(std::chrono::steady_clock::time_point deadline);

 private:
  using Waiters = std::list<control::asio::steady_timer*>;
  class Registration {
   public:
    Registration(Waiters& waiters, control::asio::steady_timer& timer)
        : waiters_(waiters), at_(waiters.insert(waiters.end(), &timer)) {}
    ~Registration() { waiters_.erase(at_); }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

   private:
    Waiters& waiters_;
    Waiters::iterator at_;
  };

  control::asio::any_io_executor executor_;
  std::shared_ptr<Waiters> waiters_ = std::make_shared<Waiters>();
  std::shared_ptr<std::vector<std::function<void()>>> listeners_ =
      std::make_shared<std::vector<std::function<void()>>>();
};

}  // namespace ckpt::coordinator
