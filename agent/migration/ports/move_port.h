// SPDX-License-Identifier: Apache-2.0
// The interface of snapshots to the moves of this node's jobs.
// Threads: the event loop. Ownership: the implementation outlives its users. Errors: none.
#pragma once

#include "agent/io/async.h"
#include "libckpt/protocol/wire/image_messages.h"

namespace ckpt::agent {

class MovePort {
 public:
  virtual ~MovePort() = default;
  // Returns true if a migration of the job is open.
  [[nodiscard]] virtual bool is_moving(wire::JobId job) const = 0;
  // Carries out an order to a rank that takes part in a move, and answers the coordinator.
  virtual Task<> gather(wire::GatherRank order) = 0;
};

}  // namespace ckpt::agent
