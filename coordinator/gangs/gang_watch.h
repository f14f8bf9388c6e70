// SPDX-License-Identifier: Apache-2.0
// Ends a gang of which a rank has failed: the others wait for it in their next collective, for ever.
// Threads: one io_context on one thread. Ownership: borrows its parts, which outlive it. Errors: a stop that
// cannot be stored is logged, and tried again at the next change.
#pragma once

#include <chrono>

#include "coordinator/gangs/gang.h"
#include "coordinator/operations/stops.h"
#include "coordinator/state/event_log.h"

namespace ckpt::coordinator {

class GangWatch {
 public:
  struct Parts {
    JobTable& jobs;
    Stops& stops;
    EventLog& events;
    control::asio::any_io_executor executor;
  };
  // From SIGTERM to SIGKILL of the other ranks.
  static constexpr std::chrono::milliseconds kGrace{10'000};

  explicit GangWatch(Parts parts) : parts_(std::move(parts)) {}
  void start();
  // What is to be done now.
  void look();

 private:
  control::Task<> run();
  void end_rest(const Gang& gang, const Job& failed);

  Parts parts_;
};

}  // namespace ckpt::coordinator
