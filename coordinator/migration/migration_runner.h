// SPDX-License-Identifier: Apache-2.0
// Runs migrations: takes requests, feeds the switch machines (switch_driver.h) with messages and with the
// presence of nodes, and sends their messages. MigrationOutcomes writes their reports into the table.
//
// The journal decides; the table shows. A request waits while a record of its migration is being written:
// begun() and caught_up() return when that is done. A journal that refuses cleanly (full disk) fails the
// migration at hand. A record of unknown fate ends the process through `fatal`, and the restart reads the
// journal.
// Threads: one io_context on one thread. Ownership: owns the driver and its journal; borrows its
// dependencies, which outlive it. Errors: kNotFound, kRefused (too late, or the migration is over); those of
// store and journal.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "coordinator/fleet/node_calls.h"
#include "coordinator/migration/migration_outcomes.h"
#include "coordinator/migration/switch_driver.h"
#include "coordinator/policies/placement/networks.h"
#include "coordinator/state/signal.h"
#include "libckpt/base/rarely.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::coordinator {

class MigrationRunner : private SwitchEffects {
 public:
  struct Dependencies {
    MigrationTable& table;
    StoreSync& sync;
    EventLog& events;
    NodeTable& nodes;
    NodeCalls& calls;
    NodeFrames& frames;
    JobTable& jobs;
    JobRunner& job_runner;
    control::asio::any_io_executor executor;
  };
  MigrationRunner(Dependencies deps, migration::Journal journal, migration::Timing timing,
                  std::function<void(const Error&)> fatal);

  // Once, after the table was loaded and before agents may connect.
  Result<void> restore();

  struct Request {
    Place to;
    wire::MigrateOptions options;
    std::int64_t timeout_ms = 0;
    double expected_pause_ms = 0;
    std::string reason;
    SharedNetwork network;  // the plan's
  };
  // The caller has checked all that can be refused without asking the nodes. A network over which the target
  // is not reached, and a journal without space, close the migration as refused, later.
  Result<Migration*> begin(const Job& job, const Request& request, wire::MigrationPlan plan);
  // Returns when the begin is durable, or with the refusal of network or journal.
  control::Task<Result<Migration*>> begun(MigrationId id);
  // A switch that `node` has open and that no record here has. Its sides are asked, and their records decide.
  // kInvalidArgument if it is no switch of that node.
  Result<void> recover(const std::string& node, migration::SwitchInfo info);
  Result<void> abort(MigrationId id, const std::string& reason);
  // The same because its target shall take no job any more: the migration has failed, and nobody aborted it.
  Result<void> give_up(MigrationId id, const std::string& reason);
  control::Task<Result<void>> resolve(MigrationId id, Side side);
  control::Task<Result<void>> set_limits(MigrationId id, std::optional<std::int64_t> max_downtime_ns,
                                         std::optional<std::uint64_t> bandwidth);
  // The receiver of reports, also of those of moves of ranks: each moving rank has a migration of its own.
  [[nodiscard]] MigrationOutcomes& outcomes() { return outcomes_; }
  // Returns when all requests and messages up to now are handled, their records durable.
  control::Task<> caught_up(MigrationId id) { return driver_.caught_up(id); }
  control::Task<Result<migration::Journal::Copy>> copy_journal() { return driver_.copy_journal(); }
  // Removes some of the closed migrations that need not stay, the oldest first. One stays that an agent may
  // still ask about, and the newest of a job that has not ended. True: there may be more.
  bool prune(const Retention& keep);

  void on_node_ready(const Node& node);
  void on_node_lost(const Node& node);

 private:
  // SwitchEffects.
  void taking(MigrationId id, const migration::CoordinatorEvent& event) override;
  void send(const migration::SwitchInfo& info, const migration::Send& sent) override;
  void report(const migration::SwitchInfo& info, const migration::Report& report) override;
  void not_begun(MigrationId id, const Error& error) override;
  void handled(MigrationId id) override;
  [[nodiscard]] std::chrono::milliseconds duration(MigrationId id,
                                                   const migration::ArmTimer& timer) const override;
  control::Task<Result<Forget>> forgettable() override;

  Result<void> abort_for(AbortCause cause, MigrationId id, const std::string& reason);
  // The network first, then the switch.
  control::Task<> start(MigrationId id, migration::SwitchInfo info, SharedNetwork network);
  Result<void> start_switch(Migration& migration, migration::SwitchInfo info);
  // Returns when the migration's switch has begun, or will not.
  control::Task<> network_checked(MigrationId id);

  void take_frames();
  void on_switch(const Node& node, const wire::CommitMessage& message, std::size_t bytes);
  // Why a node's message is not believed or passed on.
  [[nodiscard]] std::optional<std::string> refusal(const Node& node, const wire::CommitMessage& message,
                                                   std::size_t bytes) const;
  void on_progress(const Node& node, const wire::MigrationProgress& progress);
  void on_source_report(const Node& node, const wire::SourceReport& report);
  void on_target_report(const Node& node, const wire::TargetReport& report);
  void send_presence(const Node& node, bool connected);
  void adopt_outcome(Migration& migration);
  Migration& entry(const migration::SwitchInfo& info);
  // As which the owner of the job runs, as far as it has reported; 0: it has not.
  [[nodiscard]] Incarnation owner_of(MigrationId id) const;
  [[nodiscard]] bool may_leave(const Migration& migration) const;
  Migration* checked(MigrationId id, const Node& node, Side side);

  Dependencies deps_;
  MigrationOutcomes outcomes_;
  SwitchDriver driver_;
  std::set<MigrationId> checking_;  // whose network is being checked
  Signal checked_;
  Rarely dropped_;
};

}  // namespace ckpt::coordinator
