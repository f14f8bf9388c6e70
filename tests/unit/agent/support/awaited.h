// SPDX-License-Identifier: Apache-2.0
// Waits of a test on its event loop. Each wait names its event. If the event does not arrive, an exception
// with that name ends the test. Nothing here sleeps; the deadline matters only to a failing test.
// Threads: the loop's.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "agent/io/async.h"

namespace ckpt::agent {

inline constexpr std::chrono::seconds kEventDeadline{60};

// Runs the loop until nothing on it is ready.
inline void run_ready(asio::io_context& io) {
  io.restart();
  io.poll();
}

// Runs the loop until `happened` returns true.
inline void await_event(asio::io_context& io, const std::string& what,
                        const std::function<bool()>& happened) {
  const auto until = std::chrono::steady_clock::now() + kEventDeadline;
  io.restart();
  while (!happened()) {
    if (io.run_one_until(until) > 0) continue;
    throw std::runtime_error((io.stopped() ? "The loop has nothing left to do" : "A minute has passed") +
                             std::string(", and this has not happened: ") + what);
  }
}

// Runs the loop until nothing is left to do: no timer, no socket, no coroutine waits.
inline void await_rest(asio::io_context& io, const std::string& what) {
  const auto until = std::chrono::steady_clock::now() + kEventDeadline;
  io.restart();
  while (io.run_one_until(until) > 0) {
  }
  if (!io.stopped()) throw std::runtime_error("A minute has passed, and something still goes on: " + what);
}

// A coroutine that runs while the test acts as its peer.
template <class T>
class Running {
 public:
  Running(asio::io_context& io, std::string what, Task<T> task) : io_(io), what_(std::move(what)) {
    const auto keep = [](Task<T> inner, std::shared_ptr<std::optional<T>> to) -> Task<> {
      to->emplace(co_await std::move(inner));
    };
    control::spawn(io.get_executor(), what_, keep(std::move(task), result_));
    run_ready(io);
  }
  [[nodiscard]] bool done() const { return result_->has_value(); }
  T& result() {
    await_event(io_, what_ + " returns", [this] { return done(); });
    return **result_;
  }

 private:
  asio::io_context& io_;
  std::string what_;
  std::shared_ptr<std::optional<T>> result_ = std::make_shared<std::optional<T>>();
};

// A running coroutine without a result.
class RunningVoid {
 public:
  RunningVoid(asio::io_context& io, std::string what, Task<> task) : io_(io), what_(std::move(what)) {
    const auto keep = [](Task<> inner, std::shared_ptr<bool> to) -> Task<> {
      co_await std::move(inner);
      *to = true;
    };
    control::spawn(io.get_executor(), what_, keep(std::move(task), done_));
    run_ready(io);
  }
  [[nodiscard]] bool done() const { return *done_; }
  void finish() {
    await_event(io_, what_ + " returns", [this] { return done(); });
  }

 private:
  asio::io_context& io_;
  std::string what_;
  std::shared_ptr<bool> done_ = std::make_shared<bool>(false);
};

}  // namespace ckpt::agent
