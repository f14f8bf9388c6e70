// SPDX-License-Identifier: Apache-2.0
// All moves of this node's jobs: both commit protocols, the links to other agents, and the jobs that an
// earlier agent left paused.
// Threads: the event loop. Ownership: owns its parts; borrows context and port, which outlive it. The owner
// joins the disk pool first. Errors: create() returns the reason why the node cannot listen for other agents.
#pragma once

#include <functional>
#include <memory>

#include "agent/links/peer_links.h"
#include "agent/migration/gangs/gang_moves.h"
#include "agent/migration/migrations.h"
#include "agent/migration/ports/move_port.h"
#include "agent/migration/settling.h"

namespace ckpt::agent {

class Moves : public MovePort, private PeerMessages {
 public:
  struct Parts {
    MigrationContext& context;
    GangPort& gang_link;
    PeerLinks::Settings peers;
    Migrations::Machines handovers;
    GangDriver::Machines gangs;
  };
  static Result<std::unique_ptr<Moves>> create(Parts parts);

  [[nodiscard]] PeerLinks& peers() noexcept { return peers_; }
  [[nodiscard]] GangMoves& gangs() noexcept { return gangs_; }
  [[nodiscard]] const MoveProtocols& protocols() const noexcept { return protocols_; }
  [[nodiscard]] Settling& settling() noexcept { return settling_; }

  // Rebuilds the state machines from the journals. Runs once, before all other functions.
  Task<Result<void>> restore();
  // Handles a message of the coordinator.
  void on_message(wire::CommitMessage message);
  // Repeats reports and unanswered messages after the coordinator has reconnected.
  void restate();
  void set_lease_term(std::uint32_t term_ms);
  void forget(wire::JobId job);
  void release_closed();

  // Implements MovePort.
  [[nodiscard]] bool is_moving(wire::JobId job) const override { return protocols_.is_open(job); }
  Task<> gather(wire::GatherRank order) override { return gangs_.gather(std::move(order)); }

 private:
  explicit Moves(Parts parts);
  // Implements PeerMessages.
  bool handle(const PeerNode& node, const wire::CommitMessage& message) override;

  PeerLinks peers_;
  GangMoves gangs_;
  Migrations switches_;
  MoveProtocols protocols_{switches_, gangs_};
  Settling settling_;
};

}  // namespace ckpt::agent
