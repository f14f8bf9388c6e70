// SPDX-License-Identifier: Apache-2.0
// The node's learnt costs of pauses, kept in HOME/pause_costs. It is written beside the loop and without
// fsync: costs lost in a power cut are measured again by the next moves.
// Threads: the event loop; the file is written by a thread of the pool. Ownership: the pool outlives it.
// Errors: a file that cannot be read or written is logged, and the node begins again.
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
  // The last round of a copy of device memory.
  void learn_copy(std::uint64_t state_bytes, Nanos took);
  // A rehearsal by the programs that took part in it.
  void keep(const Result<RehearsalFacts>& facts, const std::string& of);
  // The driver's time for a context, as measured by the probe.
  void keep_context(Nanos save, Nanos restore);
  [[nodiscard]] const PauseCosts& costs() const noexcept { return costs_; }

 private:
  void write();
  asio::thread_pool& pool_;
  std::string path_;
  PauseCosts costs_;
};

}  // namespace ckpt::agent
