// SPDX-License-Identifier: Apache-2.0
// Begins migrations where the planner finds a place, and has a job's way into an image given up for a move.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kInvalidArgument, kNotFound, kRefused (nothing was touched); those of the journal.
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

// The default limit of the downtime.
inline constexpr std::int64_t kDefaultMaxDowntimeNs = 200'000'000;

struct MigrateRequest {
  std::string to = "auto";  // NODE, NODE:GPU or auto
  std::string network;      // over this one of the nodes' networks; empty: the first that both have
  wire::MigrateOptions options;
  std::int64_t timeout_ms = 0;
  std::string reason;
  std::vector<std::uint32_t> ranks;                  // of a job of several: those that move; none: all
  std::optional<wire::Communicators> communicators;  // likewise; nullopt: as the job was started with
};

// Why a job cannot be moved within its node, and to another one; empty: nothing stands in the way.
struct MoveObstacles {
  std::string within_node;
  std::string between_nodes;
  std::vector<TargetAnswer> targets;  // the nodes that were asked, if its own would let it go
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

  // Begins a move that Planner::plan() found possible. At once: without the waiting of migrate().
  Result<Migration*> begin(const Job& job, const MigrateRequest& request, const MigratePlan& plan);
  // For one rank of several that move together: its plan, and the network that it goes over.
  Result<std::pair<wire::MigrationPlan, SharedNetwork>> plan_of_rank(const Job& rank, const Place& to,
                                                                     const MigrateRequest& request) const;
  // A dry run: the plan, and whether the nodes of both sides would begin with it. Touches nothing.
  control::Task<Result<MigratePlan>> dry_run(JobId id, MigrateRequest request);
  // Whether a move of the job to that place would begin, as the nodes of both sides find: the one check of
  // `dry_run`, and of drains before and after they begin. Touches nothing. kRefused, kNotSupported: it would
  // not, with the reason; else the errors of the nodes' answers.
  control::Task<Result<void>> check(JobId id, Place to, std::string network);
  // The same of several targets, which are asked at once. In their order.
  control::Task<Result<std::vector<TargetAnswer>>> ask(JobId id, std::vector<Place> targets,
                                                       std::string network);
  // The part of it that does not depend on the target.
  control::Task<Result<void>> check_source(JobId id, bool leaves_node);
  // The obstacles to a move of this running job: its node looks at it, and so do the nodes that have a GPU for
  // it. Touches nothing. kRefused if the job does not run, else the errors of the node's answers.
  control::Task<Result<MoveObstacles>> obstacles(JobId id);
  // Waits a while for a move that is about to be possible: a job that is still starting, and memory whose
  // release the nodes have not reported yet.
  control::Task<Result<Migration*>> migrate(JobId id, MigrateRequest request);
  // Gives up parking a job that is on its way into an image although `plan` has a place for it. True: it is
  // being given up.
  bool give_up_parking(const Job& job, const MigratePlan& plan, const std::string& reason);
  bool give_up_parking(const Job& job, const std::string& reason);

 private:
  control::Task<Result<std::string>> obstacles_between(JobId id, std::vector<TargetAnswer>& targets);
  // "; node-c would take it (--to node-c)": of the other nodes of the plan.
  control::Task<std::string> others_text(JobId id, std::vector<Place> others, std::string network);
  [[nodiscard]] bool may_be_possible_soon(const Job& job) const;
  [[nodiscard]] std::string limit_warning(const Job& job, const Place& to,
                                          const wire::MigrateOptions& options) const;
  Result<wire::MigrationPlan> make_plan(const Job& job, const Place& to,
                                        const wire::MigrateOptions& options) const;
  // The network that the job's node and `to` share; `asked`: its name, or empty.
  [[nodiscard]] Result<SharedNetwork> network_to(const Job& job, const std::string& to,
                                                 const std::string& asked) const;

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
