// SPDX-License-Identifier: Apache-2.0
// Keeps the ranks of a gang together. Where one has failed the others are ended: they wait for it in their next
// collective, for ever. Where one did not go on from its image the others rest again in the images that they came from.
// Threads: one io_context on one thread. Ownership: borrows its parts, which outlive it. Errors: a stop that
// cannot be stored is logged, and tried again at the next change.
#pragma once

#include <chrono>

#include "coordinator/gangs/gang.h"
#include "coordinator/images/operations/operation_cancels.h"
#include "coordinator/images/operations/operation_runner.h"
#include "coordinator/operations/stops.h"
#include "coordinator/state/event_log.h"

namespace ckpt::coordinator {

class GangWatch {
 public:
  struct Parts {
    JobTable& jobs;
    Stops& stops;
    OperationRunner& runner;
    OperationCancels& cancels;
    const ImageCatalog& catalog;
    EventLog& events;
    control::asio::any_io_executor executor;
  };
  // From SIGTERM to SIGKILL of the other ranks.
  static constexpr std::chrono::milliseconds kGrace{10'000};

  explicit GangWatch(Parts parts) : parts_(std::move(parts)) {}
  void start();
  // Ends the other ranks of each gang with a failed rank, and parks those of a gang with a parked one.
  void look();

 private:
  control::Task<> run();
  void end_rest(const Gang& gang, const Job& failed);
  void park_rest(const Gang& gang);
  Result<void> park(const Job& rank, const std::string& why);

  Parts parts_;
};

}  // namespace ckpt::coordinator
