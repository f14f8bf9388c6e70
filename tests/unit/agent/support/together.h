// SPDX-License-Identifier: Apache-2.0
// Helpers that run several coroutines to their ends on one event loop. The coroutines begin together, as in
// an agent that receives several migrations at once.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "tests/unit/agent/support/loop.h"

namespace ckpt::agent {

template <class T>
std::vector<T> run_all_until_done(asio::io_context& io, std::vector<Task<T>> tasks) {
  std::vector<std::optional<T>> out(tasks.size());
  const auto wrap = [](Task<T> inner, std::optional<T>* to) -> Task<> {
    to->emplace(co_await std::move(inner));
  };
  for (std::size_t i = 0; i < tasks.size(); ++i)
    control::spawn(io.get_executor(), "test", wrap(std::move(tasks[i]), &out[i]));
  const auto done = [&out] {
    return std::all_of(out.begin(), out.end(), [](const auto& o) { return o.has_value(); });
  };
  io.restart();
  while (!done() && io.run_one() > 0) {
  }
  std::vector<T> results;
  for (auto& result : out) {
    EXPECT_TRUE(result.has_value());
    results.push_back(std::move(*result));
  }
  return results;
}

}  // namespace ckpt::agent
