// SPDX-License-Identifier: Apache-2.0
// Connects the moves of ranks (agent/migration/gangs) with the coordinator. GangLink sends their messages,
// and GangOrders receives their frames.
// Threads: the event loop. Ownership: borrows link and moves, which outlive it. Errors: malformed frames
// close the connection.
#pragma once

#include "agent/coordinator_link/coordinator_link.h"
#include "agent/migration/gangs/gang_moves.h"

namespace ckpt::agent {

class GangLink : public GangPort {
 public:
  explicit GangLink(CoordinatorLink& link) : link_(link) {}
  bool send(const wire::CommitMessage& message) override { return link_.send(message); }
  bool send(const wire::RankGathered& answer) override { return link_.send(answer); }
  bool send(const gang::RankGroups& answer) override { return link_.send(answer); }
  void reply(std::uint64_t request, const Error& reason) override { link_.reply(request, reason); }

 private:
  CoordinatorLink& link_;
};

class GangOrders {
 public:
  // Registers its frame handlers. Create this object before the agent connects to the coordinator.
  GangOrders(CoordinatorLink& link, GangMoves& moves, asio::any_io_executor executor);
};

}  // namespace ckpt::agent
