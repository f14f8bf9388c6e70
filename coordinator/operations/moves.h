// SPDX-License-Identifier: Apache-2.0
// Begins migrations to places that the planner finds. For a move it can also cancel a job's parking
// operation.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kInvalidArgument, kNotFound, kRefused (nothing was changed); those of the journal.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "coordinator/fleet/node_calls.h"
#include "coordinator/migration/migration_runner.h"
#include "coordinator/migration/move_check.h"
#include "coordinator/operations/image_work.h"
#include "coordinator/operations/planner.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::coordinator {

// The default limit of a move's downtime, in nanoseconds.
inline constexpr std::int64_t kDefaultMaxDowntimeNs = 200'000'000;

struct MigrateRequest {
  std::string to = "auto";  // the target: NODE, NODE:GPU or auto
  std::string network;      // the network to use; empty: the first that both nodes have
  wire::MigrateOptions options;
  std::int64_t timeout_ms = 0;
  std::string reason;
  std::vector<std::uint32_t> ranks;  // the ranks that move, for a job of several ranks; empty: all
  std::optional<wire::Communicators> communicators;  // when the ranks' communicators are made; nullopt: as at
                                                     // the job's start
  std::optional<wire::Connections> connections;      // how the move treats connections to other programs;
                                                     // nullopt: the job's own setting
};

// Why a job cannot be moved within its node, and to another node. An empty text means that there is no
// obstacle.
struct MoveObstacles {
  std::string within_node;
  std::string between_nodes;
  std::vector<TargetAnswer> targets;  // the nodes that were queried, if the job's own node would let the job
                                      // leave
};

class Moves {
 public:
  struct Dependencies {
    const Config& config;
    NodeTable& nodes;
    NodeCalls& calls;
    JobTable& jobs;
    const MigrationTable& migrations;
    MigrationRunner& migration_runner;
    const JobStates& states;
    const Planner& planner;
    ImageWork& image_work;
    std::string peer_token;
  };
  explicit Moves(Dependencies deps) : deps_(std::move(deps)) {}

  // Begins a move that Planner::plan() found possible, at once and without the waiting of migrate().
  Result<Migration*> begin(const Job& job, const MigrateRequest& request, const MigratePlan& plan);
  // Returns the plan of one rank of several that move together, and the network that it uses.
  Result<std::pair<wire::MigrationPlan, SharedNetwork>> plan_of_rank(const Job& rank, const Place& to,
                                                                     const MigrateRequest& request) const;
  // Returns how the move treats connections to other programs.
  [[nodiscard]] static wire::Connections connections_in(const Job& job, const MigrateRequest& request);
  // Returns the plan of a move, and whether the nodes of both sides would begin it. Changes nothing.
  control::Task<Result<MigratePlan>> dry_run(JobId id, MigrateRequest request);
  // Queries the nodes of both sides whether a move of the job to that place would begin. dry_run() uses this
  // check, and so do drains, before and after they begin. Changes nothing. Returns kRefused or kNotSupported
  // with the reason if the move would not begin, otherwise the errors of the nodes' answers.
  control::Task<Result<void>> check(JobId id, Place to, std::string network);
  // Makes the same check as check() for several targets, which are queried at once. The answers are in the
  // order of the targets.
  control::Task<Result<std::vector<TargetAnswer>>> ask(JobId id, std::vector<Place> targets,
                                                       std::string network);
  // Makes the same check for a move with the given `connections` instead of the job's own setting.
  control::Task<Result<std::vector<TargetAnswer>>> ask(JobId id, std::vector<Place> targets,
                                                       std::string network, wire::Connections connections);
  // Makes only the checks of check() that do not depend on the target.
  control::Task<Result<void>> check_source(JobId id, bool leaves_node);
  // Returns the obstacles to a move of this running job. The job's node is queried, and the nodes that have a
  // GPU for the job. Changes nothing. Returns kRefused if the job does not run, otherwise the errors of the
  // node's answers.
  control::Task<Result<MoveObstacles>> obstacles(JobId id);
  // Begins a migration. Waits up to kAdmissionWaitMs if the move may soon become possible. This is the case
  // while the job is starting, or while the nodes have not reported released memory yet.
  control::Task<Result<Migration*>> migrate(JobId id, MigrateRequest request);
  // Cancels the parking of a job that is going into an image although `plan` has a place for the job. Returns
  // true if the cancellation has begun.
  bool give_up_parking(const Job& job, const MigratePlan& plan, const std::string& reason);
  bool give_up_parking(const Job& job, const std::string& reason);

 private:
  control::Task<Result<std::string>> obstacles_between(JobId id, std::vector<TargetAnswer>& targets);
  // Returns the other nodes of the plan that would take the job: "; node-c would take it (--to node-c)".
  control::Task<std::string> others_text(JobId id, std::vector<Place> others, std::string network,
                                         wire::Connections connections);
  [[nodiscard]] bool may_be_possible_soon(const Job& job) const;
  [[nodiscard]] std::string limit_warning(const Job& job, const Place& to,
                                          const wire::MigrateOptions& options) const;
  Result<wire::MigrationPlan> make_plan(const Job& job, const Place& to,
                                        const wire::MigrateOptions& options) const;
  // Returns the network that the job's node and `to` share. `asked` is the requested name, or empty.
  [[nodiscard]] Result<SharedNetwork> network_to(const Job& job, const std::string& to,
                                                 const std::string& asked) const;

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
