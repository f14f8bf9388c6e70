// SPDX-License-Identifier: Apache-2.0
// Runs items in processes of their own, with a deadline each. Processes that an item has left behind (daemons
// too: this process adopts them) are killed when the item is over. So the next one finds the GPU free and
// nothing outlives gpu-check.
//
// Threads: one; SIGCHLD, SIGINT and SIGTERM are blocked and waited for from create() on. Ownership: one
// Supervisor in a process.
// Errors: kIo; what an item does is an Outcome.
#pragma once

#include <optional>
#include <string>

#include "tools/gpu_check/item.h"

namespace ckpt::gpu_check {

struct Ended {
  Outcome outcome;
  double seconds = 0;
  std::string output;  // if it failed: the end of what it and what it started have said
};

class Supervisor {
 public:
  static Result<Supervisor> create();

  // The item gets a folder of its own in setting.work, for temporary files, too. Interrupted by SIGINT or
  // SIGTERM: the outcome states it, and interrupted() from then on.
  Ended run(const Item& item, Setting setting, Nanos seconds);
  [[nodiscard]] bool interrupted() const noexcept { return interrupted_; }

  // Kills and reaps everything that this process has started or adopted. False if something does not end: it
  // hangs in the driver.
  bool end_all();

 private:
  Supervisor() = default;
  // The wait status, or none at the deadline or after a signal.
  std::optional<int> wait_for(int pid, Nanos deadline);
  bool interrupted_ = false;
};

}  // namespace ckpt::gpu_check
