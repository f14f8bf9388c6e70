// SPDX-License-Identifier: Apache-2.0
// The supervisor runs each item in a separate process with a deadline. Processes that an item has left behind
// are killed when the item is over, including daemons, which this process adopts. So the next item finds the
// GPU free, and no process outlives gpu-check.
//
// Threads: one; SIGCHLD, SIGINT and SIGTERM are blocked and waited for from create() on. Ownership: one
// Supervisor per process. Errors: kIo; failures of an item are an Outcome.
#pragma once

#include <optional>
#include <string>

#include "tools/gpu_check/item.h"

namespace ckpt::gpu_check {

struct Ended {
  Outcome outcome;
  double seconds = 0;
  std::string output;  // after a failure: the end of the output of the item and its processes
};

class Supervisor {
 public:
  static Result<Supervisor> create();

  // Runs an item. The item gets its own folder in setting.work, also for temporary files. After SIGINT or
  // SIGTERM the outcome states the interrupt, and interrupted() returns true from then on.
  Ended run(const Item& item, Setting setting, Nanos seconds);
  [[nodiscard]] bool interrupted() const noexcept { return interrupted_; }

  // Kills and reaps all processes that this process has started or adopted. Returns false if a process does
  // not exit because it hangs in the driver.
  bool end_all();

 private:
  Supervisor() = default;
  // Returns the wait status; nullopt at the deadline or after a signal.
  std::optional<int> wait_for(int pid, Nanos deadline);
  bool interrupted_ = false;
};

}  // namespace ckpt::gpu_check
