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
#include "agent/migration/ports/coordinator_port.h"
#include "agent/migration/ports/session_port.h"
#include "agent/migration/rank_parties.h"
#include "agent/migration/source_session.h"
#include "agent/migration/target_session.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::agent {

class Migrations : public HandoverEffects, public SessionPort {
 public:
  // The parts of the machines' driver (handover_driver.h). This class provides the driver's effects.
  struct Machines {
    asio::io_context& io;
    asio::thread_pool& disk;
    migration::Journal journal;
    migration::Timing timing;
    std::function<void(Error)> fatal;
  };
  // `ranks` is about jobs of several ranks.
  Migrations(MigrationContext& context, PeerLinks& peers, const RankParties& ranks, Machines machines);

  [[nodiscard]] HandoverDriver& driver() noexcept { return driver_; }

  void send(const migration::HandoverKey& key, const migration::HandoverInfo& info,
            const wire::CommitMessage& message) override;
  void report(const migration::HandoverKey& key, const migration::HandoverInfo& info,
              const migration::Report& report) override;
  void perform(const migration::HandoverKey& key, const migration::HandoverInfo& info,
               const migration::Action& action) override;

  Result<void> set_limits(const wire::SetLimits& limits);
  // Settles the jobs after the machines were rebuilt. The function resumes jobs that no migration holds, and
  // ends standbys that no record names. It reports to the machines which instances no longer exist (SW-4,
  // SW-5, SW-14). It returns after all jobs are settled, or after a limit. The remaining jobs are then
  // settled in the background.
  Task<> settle_after_restart();
  // Handles the answer of an unknown instance.
  void known_again(const std::shared_ptr<Job>& job);
  // Sends measurements again after the coordinator has reconnected. The machines repeat all other messages.
  void restate();
  // Checks whether a migration of the job is open on this node.
  [[nodiscard]] bool busy(wire::JobId job) const;
  // Returns the other side of a migration that is known here, open or closed. Returns nothing if only the
  // migration's outcome is known.
  [[nodiscard]] std::optional<PeerLinks::OtherSide> other_side(wire::MigrationId migration) const;
  // Releases what closed migrations still use on this node.
  void tidy();

 private:
  using SourcePtr = std::shared_ptr<SourceSession>;
  using TargetPtr = std::shared_ptr<TargetSession>;
  // SessionPort.
  void on_event(migration::HandoverKey key, migration::SourceEvent event) override;
  void on_event(migration::HandoverKey key, migration::TargetEvent event) override;
  SourcePtr& source(const migration::HandoverInfo& info);
  TargetPtr& target(const migration::HandoverInfo& info);
  void keep_peer(const migration::HandoverKey& key, const migration::HandoverInfo& info);
  void send_to_agent(const migration::HandoverKey& key, const wire::CommitMessage& message);
  void send_report_before(const wire::CommitMessage& message);
  struct Settling {
    explicit Settling(const asio::any_io_executor& executor) : done(executor) {}
    std::size_t open = 0;
    AsyncEvent done;
  };
  Task<> settle_counted(std::shared_ptr<Job> job, std::shared_ptr<Settling> settling);
  Task<> settle_known(std::shared_ptr<Job> job);
  Task<> settle(std::shared_ptr<Job> job);
  Task<> withdraw_leftovers(std::shared_ptr<Job> job);

  MigrationContext& context_;
  PeerLinks& peers_;
  const RankParties& ranks_;
  bool settled_ = false;
  std::map<wire::MigrationId, SourcePtr> sources_;
  std::map<wire::MigrationId, TargetPtr> targets_;
  std::map<migration::HandoverKey, std::string> peer_nodes_;
  HandoverDriver driver_;
};

}  // namespace ckpt::agent
