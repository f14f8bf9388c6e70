// SPDX-License-Identifier: Apache-2.0
// The effects of all handovers of this agent: the session for each action, and the route of each message.
// Messages to the other agent go through the coordinator and also directly, if there is a connection.
// Therefore every fact may arrive twice.
// Threads: the event loop. Ownership: owns the machines' driver and the sessions of open migrations. Errors:
// none leave this class. A failure becomes an event of the machine that it concerns.
#pragma once

#include <map>
#include <memory>

#include "agent/links/peer_links.h"
#include "agent/migration/handover_driver.h"
#include "agent/migration/move_protocol.h"
#include "agent/migration/ports/coordinator_port.h"
#include "agent/migration/ports/session_port.h"
#include "agent/migration/source_session.h"
#include "agent/migration/target_session.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::agent {

class Migrations : public HandoverEffects, public MoveProtocol, public SessionPort {
 public:
  // The parts of the machines' driver (handover_driver.h). This class provides the driver's effects.
  struct Machines {
    asio::io_context& io;
    asio::thread_pool& disk;
    migration::Journal journal;
    migration::Timing timing;
    std::function<void(Error)> fatal;
  };
  Migrations(MigrationContext& context, PeerLinks& peers, Machines machines);

  [[nodiscard]] HandoverDriver& driver() noexcept { return driver_; }

  void send(const migration::HandoverKey& key, const migration::HandoverInfo& info,
            const wire::CommitMessage& message) override;
  void report(const migration::HandoverKey& key, const migration::HandoverInfo& info,
              const migration::Report& report) override;
  void perform(const migration::HandoverKey& key, const migration::HandoverInfo& info,
               const migration::Action& action) override;

  // Implements MoveProtocol.
  Task<Result<void>> restore() override { return driver_.restore(); }
  void on_message(wire::CommitMessage message) override { driver_.on_message(std::move(message)); }
  bool take_of_peer(const PeerNode& node, const wire::CommitMessage& message) override;
  void set_lease_term(std::uint32_t term_ms) override { driver_.set_lease_term(term_ms); }
  void restate() override;
  Result<void> set_limits(const wire::SetLimits& limits) override;
  void forget(wire::JobId job) override { driver_.forget(job); }
  void release_closed() override;
  [[nodiscard]] bool sends(wire::MigrationId migration) const override;
  [[nodiscard]] bool is_open(wire::JobId job) const override;
  [[nodiscard]] bool may_run_freely(const Job& job) const override;
  [[nodiscard]] bool has_promised(wire::MigrationId migration) const override;
  void on_standby_ended(wire::MigrationId migration) override;
  [[nodiscard]] std::vector<wire::OpenHandover> open_handovers() const override;
  [[nodiscard]] wire::MigrationId newest() const override { return driver_.handovers().newest(); }
  [[nodiscard]] std::optional<wire::HandoverFacts> describe(
      const wire::DescribeHandover& request) const override;

 private:
  using SourcePtr = std::shared_ptr<SourceSession>;
  using TargetPtr = std::shared_ptr<TargetSession>;
  // Implements SessionPort.
  void on_event(migration::HandoverKey key, migration::SourceEvent event) override;
  void on_event(migration::HandoverKey key, migration::TargetEvent event) override;
  SourcePtr& source(const migration::HandoverInfo& info);
  TargetPtr& target(const migration::HandoverInfo& info);
  void add_peer(const migration::HandoverKey& key, const migration::HandoverInfo& info);
  void send_to_agent(const migration::HandoverKey& key, const wire::CommitMessage& message);
  void send_report_before(const wire::CommitMessage& message);
  // Returns the other side of a migration that is known here, open or closed. Returns nothing if only the
  // migration's outcome is known.
  [[nodiscard]] std::optional<OtherSide> other_side(wire::MigrationId migration) const;

  MigrationContext& context_;
  PeerLinks& peers_;
  std::map<wire::MigrationId, SourcePtr> sources_;
  std::map<wire::MigrationId, TargetPtr> targets_;
  std::map<migration::HandoverKey, std::string> peer_nodes_;
  HandoverDriver driver_;
};

}  // namespace ckpt::agent
