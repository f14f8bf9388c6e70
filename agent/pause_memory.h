// SPDX-License-Identifier: Apache-2.0
// What this node has learnt of pauses, kept in HOME/pause_costs. It is written beside the loop and without fsync: what a power cut takes, the next
// moves measure again.
// Threads: the event loop; the file is written by a thread of the pool. Ownership: the pool outlives it. Errors: a file that cannot be
// read or written is logged, and the node begins anew.
#pragma once

#include <string>

#include "agent/async.h"
#include "agent/pause_estimate.h"

namespace ckpt::agent {

class PauseMemory {
 public:
  PauseMemory(asio::thread_pool& pool, const std::string& home);
  void learn(const PauseWork& work, const wire::PauseNumbers& took, bool at_target);
  [[nodiscard]] const PauseCosts& costs() const noexcept { return costs_; }

 private:
  asio::thread_pool& pool_;
  std::string path_;
  PauseCosts costs_;
};

}  // namespace ckpt::agent
