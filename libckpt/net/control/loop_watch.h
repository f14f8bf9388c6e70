// SPDX-License-Identifier: Apache-2.0
// Reports an event loop that stalls, and where its thread is. One blocking call makes a daemon unresponsive
// without a line in its log. The process is terminated if its loop stalls for too long, and the next process
// continues from the data on disk. A process that was stopped as a whole is not reported.
// Threads: a separate thread calls the functions of Settings. create() and the destructor may run on any
// thread. Call the destructor only when the loop runs no more handlers.
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

// A detector that decides from the loop's last beat whether the loop stalls. It is pure; all times are of one
// steady clock.
class StallDetector {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Verdict { kRuns, kStalled, kReported, kTooLong };

  struct Limits {
    std::chrono::milliseconds check_interval{500};   // the time between two checks
    std::chrono::milliseconds report_after{10'000};  // the time without a beat after which the stall is
                                                     // reported
    std::chrono::milliseconds end_after{60'000};     // the time without a beat after which the process is
                                                     // terminated
  };

  StallDetector(Limits limits, Clock::time_point now) : limits_(limits), checked_(now) {}

  // Checks the loop; `beats` is the number of beats so far. Returns kStalled once per stall, then kReported,
  // and kTooLong from `end_after` on. At most twice `check_interval` of the time between two calls is
  // counted: after a longer time, the whole process was stopped.
  Verdict check(Clock::time_point now, std::uint64_t beats);
  [[nodiscard]] std::chrono::milliseconds stood_for() const { return stood_for_; }

 private:
  Limits limits_;
  Clock::time_point checked_;
  std::uint64_t beats_ = 0;
  std::chrono::milliseconds stood_for_{0};
  bool reported_ = false;
};

class LoopWatch {
 public:
  struct Settings {
    StallDetector::Limits limits;
    // The functions for the two verdicts. `stalled` receives the place of the loop's thread: its kernel
    // function, its system call, and its stack with one address per line. `too_long` is called once the loop
    // stalls for `end_after`.
    std::function<void(std::chrono::milliseconds stood_for, const std::string& where)> stalled;
    std::function<void(std::chrono::milliseconds stood_for)> too_long;
  };

  // Makes the watch. A process may have only one, because it uses the signal SIGRTMIN. The loop may already
  // run or start later.
  static Result<std::unique_ptr<LoopWatch>> create(asio::io_context& io, Settings settings);
  ~LoopWatch();
  LoopWatch(const LoopWatch&) = delete;
  LoopWatch& operator=(const LoopWatch&) = delete;

 private:
  // The counter of heartbeats. It is shared with a pending handler, which may outlive the watch.
  struct Beats {
    std::atomic<std::uint64_t> count{0};
    std::atomic<pid_t> thread{0};  // the thread ID of the loop's thread; 0 until the loop runs
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

// Returns a daemon's settings: a stall is logged as an error, and the process exits with code 70 after
// `end_after`.
LoopWatch::Settings settings_of_daemon();

}  // namespace ckpt::control
