// SPDX-License-Identifier: Apache-2.0
// The time window in which an admin lets the coordinator take in jobs that nodes report and the store does
// not know. Outside of the window such reports are only shown. A node's report alone must not create jobs. A
// restart of the coordinator closes the window.
// Threads: one io_context on one thread. Ownership: borrows the event log, which outlives it. Errors: none.
#pragma once

#include <chrono>
#include <functional>
#include <utility>

#include "coordinator/state/event_log.h"
#include "libckpt/net/control/asio.h"

namespace ckpt::coordinator {

class RecoveryWindow {
 public:
  static constexpr std::chrono::hours kLongest{24};
  // Takes `changed`, which is called at each change of is_open().
  RecoveryWindow(EventLog& events, control::asio::any_io_executor executor, std::function<void()> changed)
      : events_(events), timer_(std::move(executor)), changed_(std::move(changed)) {}

  [[nodiscard]] bool is_open() const noexcept { return open_; }
  [[nodiscard]] std::int64_t ends_ms() const noexcept {
    return open_ ? ends_ms_ : 0;
  }  // the Unix time in milliseconds when the window closes; 0: the window is closed
  // Opens the window for `span` from now on, regardless of the time that was left.
  void open(std::chrono::milliseconds span);
  void close(const std::string& reason);

 private:
  EventLog& events_;
  control::asio::steady_timer timer_;
  std::function<void()> changed_;
  std::int64_t ends_ms_ = 0;
  bool open_ = false;
};

}  // namespace ckpt::coordinator
