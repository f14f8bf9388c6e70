// SPDX-License-Identifier: Apache-2.0
// Moves ranks of a gang while all of them run (docs/adr/0038, 0041). Each rank that moves has its own
// migration in the table. The id of the first migration identifies the whole move. The journal of moves of
// ranks decides the migrations together.
//
// begin() chooses the ranks and their targets, queries groups and tickets, checks the networks, and then
// starts the state machines. Every check that can refuse the move is made before anything is changed. A
// settled move is removed from the journal once its outcome is in the store.
// Threads: one io_context on one thread. Ownership: owns the machines' driver and its journal; borrows its
// dependencies, which outlive it. Errors: kNotFound; kRefused and kNotSupported, with the reason; those of
// the journal.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/fleet/whole_job.h"
#include "coordinator/gangs/moves/gang_commit_driver.h"
#include "coordinator/images/image_numbers.h"
#include "coordinator/migration/migration_outcomes.h"
#include "coordinator/operations/moves.h"
#include "coordinator/policies/job_move_plan.h"
#include "libckpt/protocol/gang/gang_plan.h"

namespace ckpt::coordinator {

class GangMoves : private GangHandoverEffects {
 public:
  struct Dependencies {
    StoreSync& sync;
    EventLog& events;
    NodeTable& nodes;
    NodeCalls& calls;
    NodeFrames& frames;
    JobTable& jobs;
    MigrationTable& table;
    MigrationOutcomes& outcomes;
    const JobStates& states;
    const Planner& planner;
    Moves& moves;
    ImageNumbers& numbers;
    control::asio::any_io_executor executor;
  };
  GangMoves(Dependencies deps, gang::GangJournal journal, gang::Timing timing,
            std::function<void(const Error&)> fatal);

  // Restores open moves. Call this once, after the table was loaded and before agents may connect.
  Result<void> restore();
  // Places that must not receive a rank, each with the reason.
  using Closed = std::vector<std::pair<Scope, std::string>>;
  // Recovers a move that `node` describes and this coordinator has no record of. Returns kInvalidArgument if
  // the move cannot be one of that node's own.
  Result<void> recover(const std::string& node, gang::GangInfo info);
  // Returns whether the move has rows in the store but no record. Whether the move began is unknown until all
  // its nodes have connected.
  [[nodiscard]] bool lacks_record(MigrationId move) const { return without_record_.contains(move); }
  // Records that the node has connected, for the moves without a record. Fails the moves among them that none
  // of their nodes knows. Call this before the node's jobs are accepted.
  void on_ready(const Node& node);
  // Plans a move. Changes nothing. The plan uses the network of the request, not that of the hints.
  Result<JobMovePlan> plan(JobId gang, const MigrateRequest& request, const PlanHints& hints) const;
  // Plans a move for a dry run. Changes nothing. The nodes are also queried for the networks, and a refusal
  // is returned as the plan's reason.
  control::Task<Result<JobMovePlan>> dry_run(JobId gang, MigrateRequest request);
  // Begins the moves of all chosen ranks, which continue in the background. Returns the migration of the
  // first rank that moves.
  control::Task<Result<Migration*>> begin(JobId gang, MigrateRequest request, Closed closed = {});
  // Begins the moves for callers that do not wait. Either the migrations soon appear in the table, or
  // `failed` is called. Until the move is planned again, the places of `plan` are claimed for it.
  void begin_soon(JobId gang, MigrateRequest request, Closed closed, const JobMovePlan& plan,
                  std::function<void(const Error&)> failed);
  // Returns the open migration of the first rank that moves, or null.
  [[nodiscard]] const Migration* open_of(const WholeJob& gang) const;
  [[nodiscard]] bool is_beginning(JobId gang) const {
    return beginning_.contains(gang) || deps_.table.claims().contains(gang);
  }
  // Returns why no rank can be moved now, or an empty string if ranks can be moved.
  [[nodiscard]] std::string why_not_movable(const WholeJob& gang) const;

 private:
  [[nodiscard]] bool is_unsettled(JobId gang) const;
  // The events of a move that its rows already show. Each event is shown once.
  struct Shown {
    std::set<std::uint32_t> ran;
    bool is_decided = false;
    bool is_settled = false;
  };
  struct Groups {
    std::vector<gang::GroupTicket> tickets;
    std::uint64_t epoch = 0;
  };

  // These functions implement GangHandoverEffects.
  void send(const gang::GangInfo& info, const gang::Send& sent) override;
  void gather(const gang::GangInfo& info) override;
  void restore(const gang::GangInfo& info) override;
  void on_event_done(MigrationId id) override;
  void on_begin_refused(MigrationId id, const Error& error) override;
  [[nodiscard]] std::chrono::milliseconds duration(MigrationId id,
                                                   const gang::ArmTimer& timer) const override;

  // Claims the places of the plan for the move, which has no migrations yet.
  void claim(JobId gang, const JobMovePlan& plan);
  Result<WholeJob> find_movable(JobId gang, const MigrateRequest& request) const;
  // Waits briefly for obstacles that pass: a move that is not over on all nodes, or a rank that is starting
  // or paused.
  control::Task<Result<WholeJob>> wait_until_movable(JobId gang, MigrateRequest request);
  [[nodiscard]] Result<JobMovePlan> plan_for(const WholeJob& gang, const MigrateRequest& request,
                                             PlanHints hints) const;
  control::Task<> begin_and_notify(JobId gang, MigrateRequest request, Closed closed,
                                   std::function<void(const Error&)> failed);
  // A rank that is queried for its groups, and the rank's answer.
  struct AskedRank {
    std::uint32_t rank = 0;
    std::string node;
    gang::AskGroups request;
    Result<gang::RankGroups> answer = gang::RankGroups();
  };
  control::Task<> ask_rank(std::shared_ptr<std::vector<AskedRank>> ranks, std::size_t at);
  struct NetworkCheck {
    Place from;
    Place to;
    SharedNetwork network;
    Result<void> answer = ok();
  };
  control::Task<> check_one(std::shared_ptr<std::vector<NetworkCheck>> checks, std::size_t at);
  control::Task<Result<Groups>> ask_groups(WholeJob gang, std::vector<std::uint32_t> moved,
                                           std::int64_t timeout_ms);
  // Returns the longest time that communicators took in the last move of these ranks that made communicators.
  // Returns nullopt if that time is not known.
  [[nodiscard]] std::optional<double> last_communicators_ms(const WholeJob& gang) const;
  [[nodiscard]] Result<void> check_communicators(const WholeJob& gang, const JobMovePlan& plan,
                                                 const MigrateRequest& request) const;
  control::Task<Result<void>> check_networks(WholeJob gang, JobMovePlan plan, MigrateRequest request);
  Result<Migration*> record(const WholeJob& gang, const JobMovePlan& plan, const MigrateRequest& request,
                            Groups groups);
  // Creates the rows of a move. `made` receives the created rows, even on an error.
  Result<Migration*> record_rows(const WholeJob& gang, const JobMovePlan& plan, const MigrateRequest& request,
                                 Groups groups, std::vector<MigrationId>& made);
  Result<Migration*> create_row(const Job& rank, const Place& to, const MigrateRequest& request,
                                wire::MigrationPlan plan, MigrationId move);
  control::Task<> run_gather(gang::GangInfo info);
  void on_times(const Node& node, const wire::CommitMessage& message);
  void measure_skew(MigrationId move);
  Result<void> on_message(const Node& node, const wire::CommitMessage& message, std::size_t bytes);
  [[nodiscard]] const gang::GangPlan* plan_of(const gang::GangInfo& info);
  [[nodiscard]] std::string node_of(const gang::GangInfo& info, const gang::Party& party);
  [[nodiscard]] std::vector<Migration*> rows_of(const gang::GangInfo& info);
  // Creates, from the move's record, the rows that the store lacks. The journal becomes durable before the
  // store.
  Result<void> adopt_rows(const gang::GangInfo& info);
  void abort_again(const gang::CoordinatorState& state);
  void find_rows_without_record();
  void fail_those_without_record();
  void fail_without_record(MigrationId move);
  void show(const gang::CoordinatorState& state);
  void decide(const gang::CoordinatorState& state);
  void resolve(MigrationId id);
  // Settles decided moves without the ranks on removed nodes, because those nodes receive no more decisions.
  void give_up_removed_nodes(JobId gang);
  control::Task<> erase_once_stored(MigrationId id);

  Dependencies deps_;
  std::map<MigrationId, gang::GangPlan> plans_;
  std::map<MigrationId, Shown> shown_;
  std::map<MigrationId, std::set<std::string>> without_record_;  // for each move without a record, its nodes
                                                                 // that have not connected yet
  std::set<JobId> beginning_;                                    // gangs for which a move is being prepared
  LogThrottle dropped_;
  std::chrono::milliseconds late_grace_;  // the time that nodes get to answer if the move's limit has already
                                          // passed
  // expires with this object, so that a coroutine can detect its destruction
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
  GangHandoverDriver driver_;
};

}  // namespace ckpt::coordinator
