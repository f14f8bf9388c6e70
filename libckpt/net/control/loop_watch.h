// SPDX-License-Identifier: Apache-2.0
// Reports an event loop that stands still, and where its thread is. One call that blocks makes a daemon deaf, and
// its log has no word of it. A loop that stands still for too long ends the process: the next one reads what is on
// the disk. A process that was stopped as a whole is not reported.
// Threads: one of its own calls the functions of Settings. create() and the destructor on any thread; the
// destructor once the loop runs no handlers any more.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "libckpt/base/result.h"
#include "libckpt/net/control/asio.h"

namespace ckpt::control {

// Judges by the loop's last beat whether the loop stalls. Pure; times of one steady clock.
class StallJudge {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Verdict { kRuns, kStalled, kReported, kTooLong };

  struct Limits {
    std::chrono::milliseconds look{500};             // between two looks
    std::chrono::milliseconds report_after{10'000};  // without a beat
    std::chrono::milliseconds end_after{60'000};     // without a beat
  };

  StallJudge(Limits limits, Clock::time_point now) : limits_(limits), looked_(now) {}

  // `beats`: how many there have been. kStalled once for each time that it stands still, then kReported. Of the
  // time between two looks no more than twice `look` counts: where it is longer, the whole process stood.
  Verdict look(Clock::time_point now, std::uint64_t beats);
  [[nodiscard]] std::chrono::milliseconds stood_for() const { return stood_for_; }

 private:
  Limits limits_;
  Clock::time_point looked_;
  std::uint64_t beats_ = 0;
  std::chrono::milliseconds stood_for_{0};
  bool reported_ = false;
};

class LoopWatch {
 public:
  struct Settings {
    StallJudge::Limits limits;
    // Where the loop's thread is: its kernel function, its system call, and its stack, an address a line.
    std::function<void(std::chrono::milliseconds stood_for, const std::string& where)> stalled;
    std::function<void(std::chrono::milliseconds stood_for)> too_long;
  };

  // One of them in a process: it takes the signal SIGRTMIN. The loop may run before or after.
  static Result<std::unique_ptr<LoopWatch>> create(asio::io_context& io, Settings settings);
  ~LoopWatch();
  LoopWatch(const LoopWatch&) = delete;
  LoopWatch& operator=(const LoopWatch&) = delete;

 private:
  // Outlives the watch in a handler that waits.
  struct Beats {
    std::atomic<std::uint64_t> count{0};
    std::atomic<pid_t> thread{0};  // 0 until the loop runs
    std::atomic<bool> ended{false};
  };

  LoopWatch(asio::io_context& io, Settings settings);
  static Task<> beat(std::shared_ptr<Beats> beats, std::chrono::milliseconds pause);
  void watch();

  Settings settings_;
  std::shared_ptr<Beats> beats_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ending_ = false;
  std::thread thread_;
};

// Settings of a daemon: an error in the log, and after `end_after` an end with code 70.
LoopWatch::Settings settings_of_daemon();

}  // namespace ckpt::control
