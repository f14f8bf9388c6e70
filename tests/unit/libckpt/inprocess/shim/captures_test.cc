// SPDX-License-Identifier: Apache-2.0
// Tests that captures and synchronizations never overlap.
#include "libckpt/inprocess/shim/core/captures.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace ckpt::shim {
namespace {

TEST(Captures, OpenCapturePreventsSynchronization) {
  EXPECT_TRUE(static_cast<bool>(NoCapture()));
  capture_begins();
  EXPECT_TRUE(captures_open());
  EXPECT_FALSE(static_cast<bool>(NoCapture()));
  EXPECT_FALSE(wait_for_captures(now_ns() - 1));
  capture_begins();
  capture_ended();
  EXPECT_FALSE(static_cast<bool>(NoCapture()));
  std::thread ends([] { capture_ended(); });
  EXPECT_TRUE(wait_for_captures(now_ns() + 60'000'000'000));
  ends.join();
  EXPECT_TRUE(static_cast<bool>(NoCapture()));
  capture_ended();  // a surplus call has no effect
  EXPECT_TRUE(static_cast<bool>(NoCapture()));
}

TEST(Captures, NoCaptureBeginsDuringASynchronization) {
  std::atomic<int> capturing{0};
  std::atomic<int> synchronizing{0};
  std::atomic<bool> met{false};
  std::atomic<unsigned> synchronized{0};
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!over.load()) {
        const NoCapture none;
        if (!none) continue;
        synchronizing.fetch_add(1);
        if (capturing.load() != 0) met.store(true);
        synchronizing.fetch_sub(1);
        synchronized.fetch_add(1);
        synchronized.notify_all();
      }
    });
  }
  for (unsigned turn = 0; turn < 2000; ++turn) {
    capture_begins();
    capturing.fetch_add(1);
    if (synchronizing.load() != 0) met.store(true);
    capturing.fetch_sub(1);
    const unsigned before = synchronized.load();
    capture_ended();
    synchronized.wait(before);
  }
  over.store(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(met.load());
}

}  // namespace
}  // namespace ckpt::shim
