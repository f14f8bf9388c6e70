// SPDX-License-Identifier: Apache-2.0
// `rebalance`: the cluster as a packing problem, its plan, and carrying it out through ordinary migrations, a
// few at a time.
//
// A run is not stored. A coordinator that restarts carries on the migrations that are under way and has
// forgotten the rest. Asking again plans again from where the jobs are. The first move that fails ends a run
// once those beside it are over.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors: kRefused
// while a run is under way.
#pragma once

#include <optional>

#include "coordinator/operations/moves.h"
#include "coordinator/placement/rebalance_plan.h"
#include "coordinator/requests/api_section.h"
#include "libckpt/record/names.h"

namespace ckpt::coordinator {

enum class MoveState : std::uint8_t { kWaiting = 1, kMoving, kDone, kFailed, kLeft };
constexpr auto names_of(record::Of<MoveState>) {
  return record::names<MoveState>({{MoveState::kWaiting, "waiting"},
                                   {MoveState::kMoving, "moving"},
                                   {MoveState::kDone, "done"},
                                   {MoveState::kFailed, "failed"},
                                   {MoveState::kLeft, "left"}});
}

enum class RunState : std::uint8_t { kRunning = 1, kDone, kFailed, kStopped };
constexpr auto names_of(record::Of<RunState>) {
  return record::names<RunState>({{RunState::kRunning, "running"},
                                  {RunState::kDone, "done"},
                                  {RunState::kFailed, "failed"},
                                  {RunState::kStopped, "stopped"}});
}

struct RebalanceMove {
  MoveState state = MoveState::kWaiting;
  MigrationId migration = 0;  // 0: none has begun
  std::string error;
};

struct RebalanceRun {
  PackProblem problem;
  PackPlan plan;
  std::vector<RebalanceMove> moves;  // of the plan
  RunState state = RunState::kRunning;
  std::uint32_t parallel = 1;
  std::uint64_t revision = 1;
};

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

  // The jobs and GPUs to pack now.
  [[nodiscard]] PackProblem problem() const;
  Result<const RebalanceRun*> start(std::uint32_t parallel);
  void stop();  // no further move begins
  [[nodiscard]] const RebalanceRun* last() const { return run_ ? &*run_ : nullptr; }

  [[nodiscard]] bool takes(const HttpRequest& request) const override;
  control::Task<Result<HttpResponse>> handle(HttpRequest request) override;

 private:
  control::Task<> carry_out();
  control::Task<> move(std::size_t index);
  control::Task<Result<void>> migrate(std::size_t index);
  [[nodiscard]] bool fits_now(std::size_t index) const;
  void finish();
  void touch();
  control::Task<Result<HttpResponse>> watch(HttpRequest request);
  Result<HttpResponse> post(const HttpRequest& request);

  Dependencies deps_;
  Signal changed_;
  std::optional<RebalanceRun> run_;
  std::vector<std::uint64_t> available_;  // of the run's GPUs, by what has begun and ended
  bool stopping_ = false;
};

}  // namespace ckpt::coordinator
