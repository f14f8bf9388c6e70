// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/control/at_once.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "libckpt/net/control/spawn.h"

namespace ckpt::control {
namespace {

struct Gate {
  explicit Gate(asio::any_io_executor executor) : timer(std::move(executor), std::chrono::hours(1)) {}
  asio::steady_timer timer;
  unsigned waiting = 0;
  unsigned passed = 0;
};

Task<> pass(Gate* gate, unsigned all) {
  if (++gate->waiting == all) gate->timer.cancel();
  while (gate->waiting < all) co_await gate->timer.async_wait(kTuple);
  ++gate->passed;
}

Task<> fail() {
  throw std::runtime_error("of the test");
  co_return;
}

Task<> run(asio::any_io_executor executor, std::vector<Task<>> tasks, bool* done) {
  co_await at_once(executor, "a task of the test", std::move(tasks));
  *done = true;
}

// Each task completes only after all tasks have started: run one after another, none would complete.
TEST(AtOnce, TasksRunConcurrently) {
  asio::io_context io(1);
  Gate gate(io.get_executor());
  std::vector<Task<>> tasks;
  for (int i = 0; i < 4; ++i) tasks.push_back(pass(&gate, 4));
  bool done = false;
  spawn(io.get_executor(), "test", run(io.get_executor(), std::move(tasks), &done));
  io.poll();
  EXPECT_TRUE(done);
  EXPECT_EQ(gate.passed, 4U);
}

TEST(AtOnce, ReturnsIfATaskThrowsOrIfThereAreNoTasks) {
  asio::io_context io(1);
  std::vector<Task<>> tasks;
  tasks.push_back(fail());
  bool failed = false;
  bool none = false;
  spawn(io.get_executor(), "test", run(io.get_executor(), std::move(tasks), &failed));
  spawn(io.get_executor(), "test", run(io.get_executor(), {}, &none));
  io.run();
  EXPECT_TRUE(failed);
  EXPECT_TRUE(none);
}

}  // namespace
}  // namespace ckpt::control
