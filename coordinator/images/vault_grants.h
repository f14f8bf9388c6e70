// SPDX-License-Identifier: Apache-2.0
// The own vault of a node for another one that writes or reads it. That node grants it, and the two move the
// content between themselves (libckpt/store/peer).
// Threads: one io_context on one thread. Ownership: borrows the calls, which outlive it. Errors: those of the
// vault's node; kUnavailable: it is away.
#pragma once

#include <string>

#include "coordinator/fleet/node_calls.h"

namespace ckpt::coordinator {

class VaultGrants {
 public:
  explicit VaultGrants(NodeCalls& calls) : calls_(calls) {}

  // Asks `owner` to grant `user` its vault. The address is empty if they are one node, which needs no grant.
  control::Task<Result<wire::VaultPeer>> ask(std::string owner, std::string user, wire::GrantVault request);
  // Best effort: it ends by itself.
  control::Task<> give_back(wire::VaultPeer peer);

 private:
  NodeCalls& calls_;
};

}  // namespace ckpt::coordinator
