// SPDX-License-Identifier: Apache-2.0
// Tests the gate with many threads: no thread is inside a closed gate, whatever the threads do, and all
// threads continue afterwards.
#include "libckpt/inprocess/shim/core/gate.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <latch>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace ckpt::shim {
namespace {

constexpr Nanos kLong = 60'000'000'000;
constexpr Nanos kShort = 20'000'000;

class GateTest : public testing::Test {
 protected:
  void TearDown() override { gate().open(); }
};

TEST_F(GateTest, EmptyGateClosesImmediately) {
  ASSERT_TRUE(gate().close(kLong));
  EXPECT_TRUE(gate().closed());
  gate().open();
  EXPECT_FALSE(gate().closed());
}

TEST_F(GateTest, GateReportsTheBlockingCallAndOpensAgain) {
  std::latch inside(1);
  std::latch finish(1);
  std::thread stuck([&] {
    const GateScope scope("cuMemcpyDtoH");
    inside.count_down();
    finish.wait();
  });
  inside.wait();
  const Result<void> closed = gate().close(kShort);
  ASSERT_FALSE(closed);
  EXPECT_EQ(ErrorCode::kTimedOut, closed.error().code());
  EXPECT_NE(std::string::npos, closed.error().message().find("cuMemcpyDtoH")) << closed.error().message();
  EXPECT_FALSE(gate().closed());
  { const GateScope scope("cuLaunchKernel"); }  // the job continues to run
  finish.count_down();
  stuck.join();
  EXPECT_TRUE(gate().close(kLong));
}

TEST_F(GateTest, ANestedCallPassesAClosingGate) {
  std::latch inside(1);
  std::atomic<bool> nested{false};
  std::thread caller([&] {
    const GateScope outer("cuGraphLaunch");
    inside.count_down();
    while (!gate().closed()) std::this_thread::yield();
    const GateScope inner("cuMemAlloc_v2");
    nested = true;
  });
  inside.wait();
  EXPECT_TRUE(gate().close(kLong));
  EXPECT_TRUE(nested);
  caller.join();
}

TEST_F(GateTest, AWaitingThreadDelaysTheDrainButNotTheClose) {
  std::latch waiting(1);
  std::latch device_done(1);
  std::atomic<bool> returned{false};
  std::thread waiter([&] {
    const GateScope scope("cuStreamSynchronize");
    {
      const GateWait wait;
      waiting.count_down();
      device_done.wait();
    }
    returned = true;
  });
  waiting.wait();
  ASSERT_TRUE(gate().close(kLong));
  const Result<void> drained = gate().drain(kShort);
  ASSERT_FALSE(drained);
  EXPECT_NE(std::string::npos, drained.error().message().find("cuStreamSynchronize"));
  device_done.count_down();
  EXPECT_TRUE(gate().drain(kLong));
  EXPECT_FALSE(returned);  // the call is blocked on its way back
  gate().open();
  waiter.join();
  EXPECT_TRUE(returned);
}

// Checks one property: between close and open, no effect of a thread inside the gate is observed. The test
// uses random calls, waits, nested scopes, and threads that begin and end.
TEST_F(GateTest, NoThreadIsInsideAClosedGate) {
  constexpr int kThreads = 8;
  constexpr int kCloses = 300;
  std::atomic<bool> stop{false};
  std::atomic<int> inside{0};
  std::atomic<std::uint64_t> calls{0};
  // One thread writes this counter inside the gate, and the test reads the counter while the gate is closed.
  // TSan reports a race if the gate does not order both accesses. Therefore all other accesses are relaxed.
  std::int64_t unguarded = 0;
  auto one_call = [&](std::mt19937& random, bool writer) {
    const GateScope scope("cuLaunchKernel");
    inside.fetch_add(1, std::memory_order_relaxed);
    if (writer) ++unguarded;
    if (random() % 4 == 0) {
      const GateScope nested("cuMemAlloc_v2");
      calls.fetch_add(1, std::memory_order_relaxed);
    }
    inside.fetch_sub(1, std::memory_order_relaxed);
    if (random() % 8 == 0) {
      const GateWait wait;
      std::this_thread::yield();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random(static_cast<unsigned>(i));
      while (!stop) {
        if (random() % 64 == 0 && i != 0) {
          std::thread([&] { one_call(random, false); }).join();
        } else {
          one_call(random, i == 0);
        }
        calls.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  for (int i = 0; i < kCloses; ++i) {
    const std::uint64_t before = calls.load(std::memory_order_relaxed);
    while (calls.load(std::memory_order_relaxed) == before) std::this_thread::yield();
    ASSERT_TRUE(gate().close(kLong));
    ASSERT_EQ(0, inside.load(std::memory_order_relaxed));
    const std::int64_t seen = unguarded;
    ASSERT_TRUE(gate().drain(kLong));
    ASSERT_EQ(0, inside.load(std::memory_order_relaxed));
    ASSERT_EQ(seen, unguarded);
    gate().open();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

// One thread only enters and leaves, while the gate closes at every possible moment. The thread's mark of its
// place and its read of the gate are two instructions that a processor may reorder.
TEST_F(GateTest, NoThreadEntersAClosingGate) {
#ifdef __SANITIZE_THREAD__
  const int closes = 500;  // TSan does not detect reordered instructions, and makes them rare
#else
  const char* wanted = std::getenv("GPUMIGRATE_TEST_CLOSES");
  const int closes = wanted == nullptr ? 2000 : std::atoi(wanted);
#endif
  constexpr int kLooks = 100;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> calls{0};  // written by a single thread
  std::thread caller([&] {
    for (std::uint64_t call = 1; !stop.load(std::memory_order_relaxed); ++call) {
      const GateScope scope("cuLaunchKernel");
      calls.store(call, std::memory_order_relaxed);
    }
  });
  std::uint64_t slipped = 0;
  bool closed = true;
  std::mt19937 random(1);
  for (int i = 0; i < closes && closed; ++i) {
    const std::uint64_t until = calls.load(std::memory_order_relaxed) + 1 + random() % 200;
    for (int look = 1; calls.load(std::memory_order_relaxed) < until; ++look) {
      if (look % 4096 == 0)
        std::this_thread::yield();  // on a single processor the caller cannot run
                                    // otherwise
    }
    closed = gate().close(kLong).has_value();
    const std::uint64_t seen = calls.load(std::memory_order_relaxed);
    for (int look = 0; look < kLooks; ++look) slipped += calls.load(std::memory_order_relaxed) - seen;
    gate().open();
  }
  stop = true;
  caller.join();
  EXPECT_TRUE(closed);
  EXPECT_EQ(0U, slipped);
}

TEST_F(GateTest, AForkedChildStartsWithAnOpenAndEmptyGate) {
  std::latch inside(1);
  std::latch finish(1);
  std::thread stuck([&] {
    const GateScope scope("cuMemcpyDtoH");
    inside.count_down();
    finish.wait();
  });
  inside.wait();
  { const GateScope scope("cuInit"); }
  const pid_t child = ::fork();
  if (child == 0) {
    const bool open = !gate().closed();
    { const GateScope scope("cuLaunchKernel"); }
    ::_exit(open && gate().close(kLong).has_value() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(child, ::waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
  finish.count_down();
  stuck.join();
}

}  // namespace
}  // namespace ckpt::shim
