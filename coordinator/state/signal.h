// SPDX-License-Identifier: Apache-2.0
// Wakes coroutines that wait for a change (long polls). A waiter must check its condition again after every
// wake.
// Threads: one io_context on one thread. Ownership: copies share one state, so a coroutine may be destroyed
// late.
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

  // Adds a listener for the lifetime of the signal. It runs within each notify(), in the middle of a change,
  // so it may only wake a waiter.
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
