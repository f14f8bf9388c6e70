// SPDX-License-Identifier: Apache-2.0
#include "coordinator/cluster/recovery_window.h"

#include <fmt/format.h>

#include "libckpt/base/clock.h"

namespace ckpt::coordinator {

void RecoveryWindow::open(std::chrono::milliseconds span) {
  ends_ms_ = wall_clock_ms() + span.count();
  timer_.expires_after(span);  // also cancels the wait that an earlier open() began
  timer_.async_wait([this](boost::system::error_code code) {
    if (!code) close("the time limit has expired");
  });
  events_.add(
      "recovery-opened",
      fmt::format("for {} s, jobs that nodes report and the store lacks are accepted", span.count() / 1000));
  open_ = true;
  changed_();
}

void RecoveryWindow::close(const std::string& reason) {
  if (!open_) return;
  open_ = false;
  timer_.cancel();
  events_.add("recovery-closed", "jobs that the store lacks are no longer accepted: " + reason);
  changed_();
}

}  // namespace ckpt::coordinator
