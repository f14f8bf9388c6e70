// SPDX-License-Identifier: Apache-2.0
// Several coroutines that wait for one event.
#include "agent/io/waiters.h"

#include <gtest/gtest.h>

#include "tests/unit/agent/support/awaited.h"
#include "tests/unit/agent/support/loop.h"

namespace ckpt::agent {
namespace {

constexpr auto kForever = std::chrono::steady_clock::time_point::max();

TEST(Waiters, NotificationWakesEachWait) {
  asio::io_context io;
  const auto waiters = std::make_shared<Waiters>(io.get_executor());
  Running<bool> first(io, "the first wait", waiters->wait(kForever));
  Running<bool> second(io, "the second wait", waiters->wait(kForever));
  EXPECT_EQ(waiters->count(), 2U);
  waiters->notify_all();
  EXPECT_TRUE(first.result());
  EXPECT_TRUE(second.result());
  EXPECT_EQ(waiters->count(), 0U);
}

// The event of the wait no longer exists when the next notification comes.
TEST(Waiters, WaitWhoseTimeRunsOutIsNotNotifiedAnyMore) {
  asio::io_context io;
  const auto waiters = std::make_shared<Waiters>(io.get_executor());
  EXPECT_FALSE(run_until_done(io, waiters->wait(std::chrono::steady_clock::now())));
  EXPECT_EQ(waiters->count(), 0U);
  waiters->notify_all();
}

TEST(Waiters, AbandonedWaitIsNotNotifiedAnyMore) {
  std::shared_ptr<Waiters> waiters;
  {
    asio::io_context io;
    waiters = std::make_shared<Waiters>(io.get_executor());
    const Running<bool> wait(io, "the wait", waiters->wait(kForever));
    EXPECT_EQ(waiters->count(), 1U);
  }
  EXPECT_EQ(waiters->count(), 0U);
  waiters->notify_all();
}

}  // namespace
}  // namespace ckpt::agent
