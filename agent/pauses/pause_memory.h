// SPDX-License-Identifier: Apache-2.0
// The node's measured costs of pauses, stored in HOME/pause_costs. The file is written in another thread and
// without fsync, because the next moves measure lost costs again after a power failure.
// Threads: the event loop. A thread of the pool writes the file. Ownership: the pool outlives it. Errors: a
// file that cannot be read or written is logged, and the node starts without costs.
#pragma once

#include <string>

#include "agent/io/async.h"
#include "agent/pauses/pause_estimate.h"
#include "agent/pauses/rehearsal.h"

namespace ckpt::agent {

class PauseMemory {
 public:
  PauseMemory(asio::thread_pool& pool, const std::string& home);
  void learn(const PauseWork& work, const wire::PauseNumbers& took, bool at_target);
  // Adds the last round of a copy of device memory.
  void learn_copy(std::uint64_t state_bytes, Nanos took);
  // Stores the result of a rehearsal. `of` names the programs that took part in it.
  void record(const Result<RehearsalFacts>& facts, const std::string& of);
  // Stores the driver's time for a context, as the probe measured it.
  void record_context(Nanos save, Nanos restore);
  [[nodiscard]] const PauseCosts& costs() const noexcept { return costs_; }

 private:
  void write();
  asio::thread_pool& pool_;
  std::string path_;
  PauseCosts costs_;
};

}  // namespace ckpt::agent
