// SPDX-License-Identifier: Apache-2.0
// The interface of a commit protocol to the agent, and the agent's two protocols: the switch (Migrations) and
// the gang commit (GangMoves). A message names its protocol. Only MoveProtocols reads that name.
// Threads: the event loop. Ownership: borrows the protocols, which outlive it. Errors: those of each
// function.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "agent/jobs/job.h"
#include "agent/links/peer_messages.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::agent {

class MoveProtocol {
 public:
  virtual ~MoveProtocol() = default;

  // Rebuilds the machines and executes their actions. Runs once, before all other functions.
  virtual Task<Result<void>> restore() = 0;
  // Handles a message of the coordinator.
  virtual void on_message(wire::CommitMessage message) = 0;
  // Handles a message of another agent. Returns false if that agent may not act as the message's sender.
  virtual bool take_of_peer(const PeerNode& node, const wire::CommitMessage& message) = 0;
  virtual void set_lease_term(std::uint32_t term_ms) = 0;
  // Repeats measurements and unanswered messages after the coordinator has reconnected.
  virtual void restate() = 0;
  // Changes the limits of a move. The error is kNotFound if no such move has its source here.
  virtual Result<void> set_limits(const wire::SetLimits& limits) = 0;
  // Removes what is known about the closed moves of a job.
  virtual void forget(wire::JobId job) = 0;
  // Releases what closed moves still use on this node.
  virtual void release_closed() = 0;

  // Checks whether the move is open and this node is its source.
  [[nodiscard]] virtual bool sends(wire::MigrationId migration) const = 0;
  // Checks whether a move of the job is open on this node.
  [[nodiscard]] virtual bool is_open(wire::JobId job) const = 0;
  // Checks whether a paused instance may continue without a move.
  [[nodiscard]] virtual bool may_run_freely(const Job& job) const = 0;
  // Checks whether the standby of that migration may be the job's only instance.
  [[nodiscard]] virtual bool has_promised(wire::MigrationId migration) const = 0;
  // Handles the exit of such a standby that happened while its agent was not running.
  virtual void on_standby_ended(wire::MigrationId migration) = 0;

  // Reports for a coordinator that may have lost its records: the open moves, the newest known id, and the
  // description of a move.
  [[nodiscard]] virtual std::vector<wire::OpenHandover> open_handovers() const = 0;
  [[nodiscard]] virtual wire::MigrationId newest() const = 0;
  [[nodiscard]] virtual std::optional<wire::HandoverFacts> describe(
      const wire::DescribeHandover& request) const = 0;
};

class MoveProtocols {
 public:
  MoveProtocols(MoveProtocol& handovers, MoveProtocol& gangs) : all_{&handovers, &gangs} {}

  [[nodiscard]] MoveProtocol& of(wire::CommitKind kind) const {
    return *all_[kind == wire::CommitKind::kGang ? 1 : 0];
  }
  [[nodiscard]] const std::array<MoveProtocol*, 2>& all() const noexcept { return all_; }

  [[nodiscard]] bool sends(wire::MigrationId migration) const {
    return std::any_of(all_.begin(), all_.end(), [&](const auto* one) { return one->sends(migration); });
  }
  [[nodiscard]] bool is_open(wire::JobId job) const {
    return std::any_of(all_.begin(), all_.end(), [&](const auto* one) { return one->is_open(job); });
  }
  [[nodiscard]] bool may_run_freely(const Job& job) const {
    return std::all_of(all_.begin(), all_.end(), [&](const auto* one) { return one->may_run_freely(job); });
  }
  // Changes the limits of the move in the protocol that knows it.
  Result<void> set_limits(const wire::SetLimits& limits) const {
    auto set = all_.front()->set_limits(limits);
    if (set || set.error().code() != ErrorCode::kNotFound) return set;
    return all_.back()->set_limits(limits);
  }
  // Describes a move that the coordinator names with its protocol.
  [[nodiscard]] std::optional<wire::HandoverFacts> describe(const wire::DescribeHandover& request) const {
    return of(request.of_ranks ? wire::CommitKind::kGang : wire::CommitKind::kHandover).describe(request);
  }

 private:
  std::array<MoveProtocol*, 2> all_;
};

}  // namespace ckpt::agent
