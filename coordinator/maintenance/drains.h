// SPDX-License-Identifier: Apache-2.0
// Drains: a drain cordons a node or a GPU and moves every job away. It is over when the place is empty, the
// deadline has passed, or nothing more can be moved. Each step is stored before the next. So a coordinator
// that was killed continues at the same step, and finds the migrations that it had begun by their jobs.
//
// Drains wake at every change of jobs, nodes, migrations and cordons. The only timer is the deadline.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kNotFound; kRefused, with nothing changed; those of the store.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/fleet/expected_pause.h"
#include "coordinator/images/images.h"
#include "coordinator/maintenance/drain_moves.h"

namespace ckpt::coordinator {

struct DrainRequest {
  Scope scope;
  std::uint32_t parallel = 2;
  std::int64_t deadline_ms = 600'000;  // the time from the request to the drain's deadline, in milliseconds
  Fallback fallback = Fallback::kLeave;
  std::string reason;
};

class Drains {
 public:
  struct Dependencies {
    EventLog& events;
    NodeTable& nodes;
    JobTable& jobs;
    MigrationTable& migrations;
    CordonTable& cordons;
    const JobStates& states;
    JobMoves& moves;
    Images& images;
    DrainTable& table;
    control::asio::any_io_executor executor;
  };
  explicit Drains(Dependencies deps);

  // Continues the open drains. Call this once, after load() of all tables.
  void resume();
  // Handles a new inventory from a node: more memory may be free.
  void on_inventory();

  struct Begun {
    DrainId id = 0;
    bool joined = false;  // a drain of this place was already running, and keeps its own settings
  };
  Result<Begun> begin(const DrainRequest& request);
  // Cancels the drain. No further moves begin, and open moves continue to their end. The cordon stays.
  Result<void> cancel(DrainId id, const std::string& reason);
  void cancel_of(const Scope& scope, const std::string& reason);

  struct Prospect {
    DrainJob job;  // with state kWaiting the job would be moved to `to`; with kBlocked `reason` prevents its
                   // move
    bool passing = false;
    std::string warning;                 // a warning about the GPU that the job would leave
    std::optional<ExpectedPause> pause;  // the expected pause of the move
  };
  // Returns the moves that begin() would make, in its order, according to the answers of the nodes on both
  // sides. Changes nothing.
  control::Task<Result<std::vector<Prospect>>> dry_run(DrainRequest request);

 private:
  using Clock = std::chrono::steady_clock;

  using Prospects = std::vector<Prospect>;
  // The answers of nodes that were queried about a job. An empty text means that the node would take the job.
  using NodeAnswers = std::map<std::string, std::string>;
  using Answers = std::map<JobId, NodeAnswers>;
  // Plans the moves from the current tables, without nodes that would not take a job.
  [[nodiscard]] Result<Prospects> prospects_of(const DrainRequest& request, const Answers& answers) const;
  // Plans the ranks of one job as one move, in the same way as a drain, and reserves their places in `hints`.
  void plan_together(const DrainRequest& request, const std::vector<Prospect*>& ranks,
                     const NodeAnswers& answers, PlanHints& hints) const;
  [[nodiscard]] Result<JobMovePlan> plan_for(const std::vector<JobId>& ranks, PlanHints hints,
                                             const NodeAnswers& answers) const;
  // Returns the best places that no node has been queried about yet, beginning with the planned place.
  [[nodiscard]] std::vector<Place> unasked(const DrainRequest& request, const Prospect& prospect,
                                           const NodeAnswers& answers) const;
  control::Task<> ask(std::shared_ptr<Answers> answers, JobId job, std::vector<Place> targets);

  control::Task<> expect_nodes();
  control::Task<> run(DrainId id);
  // Takes the next step. Returns when to check again even without a change, or nullopt if the drain is over.
  std::optional<Clock::time_point> step(DrainId id);
  control::Task<> restore(DrainId id, JobId job);
  void report(const Drain& drain, const DrainJob& entry);
  void save(Drain& drain);
  void wake();

  Dependencies deps_;
  DrainMoves moves_;
  std::uint64_t wakes_ = 0;
  Signal wake_;
};

}  // namespace ckpt::coordinator
