// SPDX-License-Identifier: Apache-2.0
// Threads that use the driver in every way concurrently and check their results while their process is
// stopped and restored.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "tests/conformance/support/support.h"

namespace conformance {

class Workers {
 public:
  // Starts threads on each device's primary context.
  explicit Workers(int threads);
  // Ends and joins the threads; their failures are test failures. Returns the number of rounds that all
  // threads have completed.
  std::uint64_t stop();
  [[nodiscard]] std::uint64_t rounds() const { return rounds_; }

 private:
  void work(int number, CUcontext context);
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> rounds_{0};
  std::vector<std::thread> threads_;
};

}  // namespace conformance
