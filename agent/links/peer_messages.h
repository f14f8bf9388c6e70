// SPDX-License-Identifier: Apache-2.0
// The receiver of the messages of other agents, and the right to send them.
// Threads: the event loop. Ownership: outlives the links, which call it only once the loop runs. Errors:
// none.
#pragma once

#include <string>

#include "libckpt/protocol/wire/commit_messages.h"

namespace ckpt::agent {

// An agent from which a message came.
struct PeerNode {
  std::string name;
  bool is_certified = false;  // true if a certificate names the node, false without TLS
};

class PeerMessages {
 public:
  virtual ~PeerMessages() = default;
  // Handles a message. Returns false if the node may not act as the message's sender.
  virtual bool handle(const PeerNode& node, const wire::CommitMessage& message) = 0;
};

// The other node of a migration of one rank, and its party.
struct OtherSide {
  std::string node;
  wire::Role party = wire::Role::kCoordinator;
};

// Checks whether the node acts as the other side, and speaks to this side.
[[nodiscard]] inline bool speaks_for_itself(const OtherSide& side, const std::string& node,
                                            const wire::CommitMessage& message) {
  const bool is_between_agents =
      message.to.role == wire::Role::kSource || message.to.role == wire::Role::kTarget;
  return is_between_agents && side.node == node && side.party == message.from.role &&
         message.to != message.from;
}

}  // namespace ckpt::agent
