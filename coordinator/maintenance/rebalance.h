// SPDX-License-Identifier: Apache-2.0
// `rebalance`: describes the cluster as a packing problem, plans moves, and carries them out as ordinary
// migrations. A few moves run at a time (policies/rebalance/rebalance_run.h decides which).
//
// A run is not stored. After a restart, the coordinator continues the migrations that are under way, but the
// rest of the run is lost. A new request plans again from the current places of the jobs.
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

  // Returns the packing problem: the current jobs and GPUs.
  [[nodiscard]] PackProblem problem() const;
  Result<const RebalanceRun*> start(std::uint32_t parallel);
  void stop();  // stops the run: no further move begins
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
