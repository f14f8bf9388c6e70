// SPDX-License-Identifier: Apache-2.0
// `rebalance`: the cluster as a packing problem, its plan, and carrying it out through ordinary migrations, a
// few at a time (policies/rebalance/rebalance_run.h decides which).
//
// A run is not stored. A coordinator that restarts carries on the migrations that are under way and has
// forgotten the rest. Asking again plans again from where the jobs are.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors: kRefused
// while a run is under way.
#pragma once

#include <optional>

#include "coordinator/operations/moves.h"
#include "coordinator/policies/rebalance/rebalance_run.h"
#include "coordinator/requests/api_section.h"

namespace ckpt::coordinator {

class Rebalancer : public ApiSection {
 public:
  struct Dependencies {
    Moves& moves;
    const Planner& planner;
    const JobStates& states;
    JobTable& jobs;
    MigrationTable& migrations;
    EventLog& events;
    std::int64_t margin_bytes = 0;
    control::asio::any_io_executor executor;
  };
  explicit Rebalancer(Dependencies deps) : deps_(std::move(deps)), changed_(deps_.executor) {}

  // Returns the jobs and GPUs to pack now.
  [[nodiscard]] PackProblem problem() const;
  Result<const RebalanceRun*> start(std::uint32_t parallel);
  void stop();  // ends the run: no further move begins
  [[nodiscard]] const RebalanceRun* last() const { return run_ ? &*run_ : nullptr; }

  [[nodiscard]] bool handles(const HttpRequest& request) const override;
  control::Task<Result<HttpResponse>> handle(HttpRequest request) override;

 private:
  control::Task<> carry_out();
  control::Task<> move(std::size_t index);
  control::Task<Result<void>> migrate(std::size_t index);
  void end_run();
  void touch();
  control::Task<Result<HttpResponse>> watch(HttpRequest request);
  Result<HttpResponse> post(const HttpRequest& request);

  Dependencies deps_;
  Signal changed_;
  std::optional<RebalanceRun> run_;
  bool stopping_ = false;
};

}  // namespace ckpt::coordinator
