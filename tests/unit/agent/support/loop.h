// SPDX-License-Identifier: Apache-2.0
// Helpers that run one coroutine to its end on an event loop, as the agent does.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>

#include "agent/io/async.h"

namespace ckpt::agent {

template <class T>
T run_until_done(asio::io_context& io, Task<T> task) {
  std::optional<T> out;
  const auto wrap = [](Task<T> inner, std::optional<T>* to) -> Task<> {
    to->emplace(co_await std::move(inner));
  };
  control::spawn(io.get_executor(), "test", wrap(std::move(task), &out));
  io.restart();
  while (!out && io.run_one() > 0) {
  }
  EXPECT_TRUE(out.has_value());
  return std::move(*out);
}

// Runs the loop until `done` returns true; fails the test if nothing is left to happen.
inline void run_until(asio::io_context& io, const std::function<bool()>& done) {
  constexpr std::chrono::seconds kDeadline{60};
  const auto until = std::chrono::steady_clock::now() + kDeadline;
  io.restart();
  while (!done()) {
    if (io.run_one_until(until) == 0) {
      FAIL() << "the loop has nothing more to do, or nothing happened in time";
    }
  }
}

}  // namespace ckpt::agent
