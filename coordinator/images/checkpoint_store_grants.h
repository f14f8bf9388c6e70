// SPDX-License-Identifier: Apache-2.0
// Access to the checkpoint store of one node by another node, which writes or reads it. The store's node
// grants access, and the two nodes transfer the content directly (libckpt/store/peer).
// Threads: one io_context on one thread. Ownership: borrows the calls, which outlive it. Errors: those of the
// store's node; kUnavailable if that node is disconnected.
#pragma once

#include <string>

#include "coordinator/fleet/node_calls.h"

namespace ckpt::coordinator {

class CheckpointStoreGrants {
 public:
  explicit CheckpointStoreGrants(NodeCalls& calls) : calls_(calls) {}

  // Requests a grant of `owner`'s checkpoint store for `user`. The address is empty if both are the same
  // node, which needs no grant.
  control::Task<Result<wire::CheckpointStorePeer>> ask(std::string owner, std::string user,
                                                       wire::GrantCheckpointStore request);
  // Withdraws a grant. Best effort: a grant also expires on its own.
  control::Task<> give_back(wire::CheckpointStorePeer peer);

 private:
  NodeCalls& calls_;
};

}  // namespace ckpt::coordinator
