// SPDX-License-Identifier: Apache-2.0
// Runs migrations. It takes requests, passes messages and the presence of nodes to the handover machines
// (handover_driver.h), and sends the machines' messages. MigrationOutcomes writes their reports into the
// table.
//
// The journal decides, and the table only shows. A request waits while a record of its migration is being
// written: begun() and caught_up() return when that is done. A journal that refuses cleanly (full disk) fails
// the current migration. If it is unknown whether a record was written, the process exits through `fatal`,
// and the restarted process reads the journal.
// Threads: one io_context on one thread. Ownership: owns the driver and its journal; borrows its
// dependencies, which outlive it. Errors: kNotFound; kRefused (too late, or the migration is over); those of
// store and journal.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "coordinator/fleet/node_calls.h"
#include "coordinator/migration/handover_driver.h"
#include "coordinator/migration/migration_outcomes.h"
#include "coordinator/policies/placement/networks.h"
#include "coordinator/state/signal.h"
#include "libckpt/base/log_throttle.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::coordinator {

class MigrationRunner : private HandoverEffects {
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

  // Restores the open migrations. Call this once, after the table was loaded and before agents may connect.
  Result<void> restore();

  struct Request {
    Place to;
    std::int64_t timeout_ms = 0;
    double expected_pause_ms = 0;
    std::string reason;
    SharedNetwork network;  // the plan's network
  };
  // Begins a migration. The caller has made all checks that need no query to the nodes. If the network does
  // not reach the target, or the journal has no space, the migration is later closed as refused.
  Result<Migration*> begin(const Job& job, const Request& request, wire::MigrationPlan plan);
  // Returns the migration when its begin is durable, or the refusal of the network or the journal.
  control::Task<Result<Migration*>> begun(MigrationId id);
  // Recovers a handover that `node` has open and this coordinator has no record of. Its sides are queried,
  // and their records decide. Returns kInvalidArgument if it is not a handover of that node.
  Result<void> recover(const std::string& node, migration::HandoverInfo info);
  Result<void> abort(MigrationId id, const std::string& reason);
  // Cancels a migration because its target accepts no job any more. The migration is recorded as failed, not
  // as aborted by a user.
  Result<void> give_up(MigrationId id, const std::string& reason);
  control::Task<Result<void>> resolve(MigrationId id, Side side);
  control::Task<Result<void>> set_limits(MigrationId id, std::optional<std::int64_t> max_downtime_ns,
                                         std::optional<std::uint64_t> bandwidth);
  // Returns the receiver of reports, including those of moves of ranks. Each moving rank has a migration of
  // its own.
  [[nodiscard]] MigrationOutcomes& outcomes() { return outcomes_; }
  // Waits until all requests and messages up to now are handled and their records are durable.
  control::Task<> caught_up(MigrationId id) { return driver_.caught_up(id); }
  control::Task<Result<migration::Journal::Copy>> copy_journal() { return driver_.copy_journal(); }
  // Removes some of the closed migrations that `retention` does not keep, the oldest first. A migration stays
  // if an agent may still query it, or if it is the newest of a job that has not ended. Returns true if there
  // may be more.
  bool prune(const Retention& retention);

  void on_node_ready(const Node& node);
  void on_node_lost(const Node& node);

 private:
  // These functions implement HandoverEffects.
  void before_event(MigrationId id, const migration::CoordinatorEvent& event) override;
  void send(const migration::HandoverInfo& info, const migration::Send& sent) override;
  void report(const migration::HandoverInfo& info, const migration::Report& report) override;
  void on_begin_refused(MigrationId id, const Error& error) override;
  void on_event_done(MigrationId id) override;
  [[nodiscard]] std::chrono::milliseconds duration(MigrationId id,
                                                   const migration::ArmTimer& timer) const override;
  control::Task<Result<Forget>> forgettable() override;

  Result<void> abort_for(AbortCause cause, MigrationId id, const std::string& reason);
  // Checks the network, and then starts the handover.
  control::Task<> start(MigrationId id, migration::HandoverInfo info, SharedNetwork network);
  Result<void> start_handover(Migration& migration, migration::HandoverInfo info);
  // Returns when the migration's handover has begun, or will not begin.
  control::Task<> network_checked(MigrationId id);

  void take_frames();
  void on_handover(const Node& node, const wire::CommitMessage& message, std::size_t bytes);
  // Returns why a node's message is not accepted or not relayed.
  [[nodiscard]] std::optional<std::string> refusal(const Node& node, const wire::CommitMessage& message,
                                                   std::size_t bytes) const;
  void on_progress(const Node& node, const wire::MigrationProgress& progress);
  void on_source_report(const Node& node, const wire::SourceReport& report);
  void on_target_report(const Node& node, const wire::TargetReport& report);
  void send_presence(const Node& node, bool connected);
  void adopt_outcome(Migration& migration);
  void abort_again(const Migration& migration);
  Migration& entry(const migration::HandoverInfo& info);
  // Returns the incarnation as which the job's owner runs, as far as reported. Returns 0 if none was
  // reported.
  [[nodiscard]] Incarnation owner_of(MigrationId id) const;
  [[nodiscard]] bool may_leave(const Migration& migration) const;
  Migration* checked(MigrationId id, const Node& node, Side side);

  Dependencies deps_;
  MigrationOutcomes outcomes_;
  HandoverDriver driver_;
  std::set<MigrationId> checking_;  // migrations whose network is being checked
  Signal checked_;
  LogThrottle dropped_;
  std::chrono::milliseconds late_grace_;  // the time that nodes get to answer if the move's limit has already
                                          // passed
};

}  // namespace ckpt::coordinator
