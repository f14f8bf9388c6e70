// SPDX-License-Identifier: Apache-2.0
// A drain cordons a node or a GPU and moves every job away. It is over when the place is empty, the deadline
// has come, or nothing can be moved any more. Each step is stored before the next. So a coordinator that was
// killed goes on where it was, and finds the migrations that it had begun by their jobs.
//
// Drains wake at every change of jobs, nodes, migrations and cordons; nothing here waits for time but the
// deadline.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kNotFound, kRefused: nothing was touched; those of the store.
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
  std::int64_t deadline_ms = 600'000;  // from now
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

  // Continues the open ones; once, after load() of everything.
  void resume();
  // A node sent its inventory: memory may be free where there was none.
  void on_inventory();

  struct Begun {
    DrainId id = 0;
    bool joined = false;  // one of this place was running already: with its own settings
  };
  Result<Begun> begin(const DrainRequest& request);
  // Begins no further moves; those that are open go on to their end. The cordon stays.
  Result<void> cancel(DrainId id, const std::string& reason);
  void cancel_of(const Scope& scope, const std::string& reason);

  struct Prospect {
    DrainJob job;  // state kWaiting: it would be moved to `to`; kBlocked: it could not, for `reason`
    bool passing = false;
    std::string warning;                 // what speaks against the GPU that it would leave
    std::optional<ExpectedPause> pause;  // that the move would be
  };
  // The moves that begin() would make, in its order, as the nodes of both sides answer. Touches nothing.
  control::Task<Result<std::vector<Prospect>>> dry_run(DrainRequest request);

 private:
  using Clock = std::chrono::steady_clock;

  using Prospects = std::vector<Prospect>;
  // The answers of nodes that were asked about a job. Empty: it would take it.
  using NodeAnswers = std::map<std::string, std::string>;
  using Answers = std::map<JobId, NodeAnswers>;
  // As the tables are, and without nodes that would not take a job.
  [[nodiscard]] Result<Prospects> prospects_of(const DrainRequest& request, const Answers& answers) const;
  // Plans the ranks of one job as one move, as a drain moves them, and promises their places in `hints`.
  void plan_together(const DrainRequest& request, const std::vector<Prospect*>& ranks,
                     const NodeAnswers& answers, PlanHints& hints) const;
  [[nodiscard]] Result<JobMovePlan> plan_for(const std::vector<JobId>& ranks, PlanHints hints,
                                             const NodeAnswers& answers) const;
  // The best places, first the one that was found, that nobody has been asked about yet.
  [[nodiscard]] std::vector<Place> unasked(const DrainRequest& request, const Prospect& prospect,
                                           const NodeAnswers& answers) const;
  control::Task<> ask(std::shared_ptr<Answers> answers, JobId job, std::vector<Place> targets);

  control::Task<> expect_nodes();
  control::Task<> run(DrainId id);
  // The next moment to look again whatever happens; nullopt: it is over.
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
