// SPDX-License-Identifier: Apache-2.0
#include "coordinator/maintenance/rebalance.h"

#include <fmt/format.h>

#include <algorithm>

#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

constexpr std::int64_t kMoveTimeoutMs = 600'000;
constexpr std::chrono::seconds kRebalancePollInterval{30};

std::optional<std::size_t> index_of(const PackProblem& problem, const Place& place) {
  for (std::size_t g = 0; g < problem.gpus.size(); ++g) {
    if (problem.gpus[g].place == place) return g;
  }
  return std::nullopt;
}

}  // namespace

PackProblem Rebalancer::problem() const {
  PackProblem problem;
  const std::vector<GpuView> views = deps_.planner.gpu_views();
  const auto margin = static_cast<std::uint64_t>(deps_.margin_bytes);
  for (const GpuView& view : views) {
    PackGpu& gpu = problem.gpus.emplace_back();
    gpu.place = view.place;
    gpu.available = view.available_bytes() - std::min(view.available_bytes(), margin);
    gpu.counts = objections_but_memory(view, PlacementRequest()).empty();
  }
  for (const Job& job : deps_.jobs.live()) {
    if (!holds_gpu(job.state)) continue;
    const Migration* open = deps_.migrations.open_of(job.id);
    const auto target = open == nullptr ? std::nullopt : index_of(problem, open->to);
    if (target) problem.gpus[*target].pinned = true;
    const auto at = index_of(problem, job.ranks.front().place);
    if (!at) continue;  // its node has not connected since the coordinator started
    PackJob& pack = problem.jobs.emplace_back();
    pack.id = job.id;
    pack.name = job.spec.name;
    pack.gpu = *at;
    pack.bytes = job.expected_bytes();
    pack.state_bytes = job.state_bytes();
    pack.obstacle = job.why_not_by_itself();
    if (pack.obstacle.empty()) pack.obstacle = deps_.states.why_not_movable(job);
    const PlacementRequest wanted = deps_.planner.request_for(job, views);
    for (const GpuView& view : views) pack.may_go.push_back(objections_but_memory(view, wanted).empty());
  }
  return problem;
}

Result<const RebalanceRun*> Rebalancer::start(std::uint32_t parallel) {
  if (run_ && run_->state == RunState::kRunning)
    return Error(ErrorCode::kRefused,
                 "A rebalance is under way: `gpumigrate rebalance --stop` ends it after its open moves");
  const std::uint64_t revision = run_ ? run_->revision + 1 : 1;
  run_.emplace();
  run_->problem = problem();
  run_->plan = plan_packing(run_->problem);
  run_->moves.resize(run_->plan.moves.size());
  run_->parallel = parallel;
  run_->revision = revision;
  available_.clear();
  for (const PackGpu& gpu : run_->problem.gpus) available_.push_back(gpu.available);
  stopping_ = false;
  deps_.events.add("rebalance-begun", fmt::format("rebalance: {} move(s) to free {} GPU(s)",
                                                  run_->moves.size(), run_->plan.freed.size()));
  control::spawn(deps_.executor, "rebalance", carry_out());
  return &*run_;
}

void Rebalancer::stop() {
  stopping_ = true;
  touch();
}

void Rebalancer::touch() {
  if (run_) ++run_->revision;
  changed_.notify();
}

// By the plan's own account; the migration looks at the nodes' before it begins.
bool Rebalancer::fits_now(std::size_t index) const {
  const PackMove& move = run_->plan.moves[index];
  return available_[move.to] >= run_->problem.jobs[move.job].bytes;
}

control::Task<> Rebalancer::carry_out() {
  const auto in = [this](MoveState state) {
    return static_cast<std::size_t>(std::count_if(run_->moves.begin(), run_->moves.end(),
                                                  [&](const RebalanceMove& m) { return m.state == state; }));
  };
  std::size_t next = 0;
  while (true) {
    const bool over = stopping_ || in(MoveState::kFailed) > 0 || next == run_->moves.size();
    const std::size_t moving = in(MoveState::kMoving);
    if (over && moving == 0) break;
    if (!over && moving < run_->parallel && (moving == 0 || fits_now(next))) {
      const PackMove& move_now = run_->plan.moves[next];
      const std::uint64_t bytes = run_->problem.jobs[move_now.job].bytes;
      available_[move_now.to] -= std::min(available_[move_now.to], bytes);
      run_->moves[next].state = MoveState::kMoving;
      control::spawn(deps_.executor, "rebalance move", move(next));
      ++next;
      continue;
    }
    co_await changed_.wait_until(std::chrono::steady_clock::now() + kRebalancePollInterval);
  }
  finish();
}

control::Task<> Rebalancer::move(std::size_t index) {
  auto moved = co_await migrate(index);
  RebalanceMove& move = run_->moves[index];
  if (moved) {
    const PackJob& job = run_->problem.jobs[run_->plan.moves[index].job];
    available_[job.gpu] += job.bytes;
    move.state = MoveState::kDone;
  } else {
    move.state = MoveState::kFailed;
    move.error = moved.error().to_string();
  }
  touch();
}

control::Task<Result<void>> Rebalancer::migrate(std::size_t index) {
  const PackMove& planned = run_->plan.moves[index];
  MigrateRequest request;
  request.to = to_text(run_->problem.gpus[planned.to].place);
  request.options.mode = wire::MigrateMode::kLive;
  request.options.max_downtime_ns = kDefaultMaxDowntimeNs;
  request.timeout_ms = kMoveTimeoutMs;
  request.reason = "rebalance: " + why_move(run_->problem, run_->plan, index);
  CKPT_CO_TRY(begun, co_await deps_.moves.migrate(run_->problem.jobs[planned.job].id, std::move(request)));
  const MigrationId id = begun->id;
  run_->moves[index].migration = id;
  touch();
  while (true) {
    const Migration* migration = deps_.migrations.find(id);
    if (migration == nullptr) co_return Error(ErrorCode::kInternal, migration_text(id) + " vanished");
    if (!migration->open()) {
      if (migration->result == MigrationResult::kDone) co_return ok();
      co_return Error(ErrorCode::kAborted, fmt::format("{} {}: {}", migration_text(id),
                                                       to_string(migration->result), migration->error));
    }
    co_await deps_.migrations.changed().wait_until(std::chrono::steady_clock::now() + kRebalancePollInterval);
  }
}

void Rebalancer::finish() {
  bool failed = false;
  std::size_t done = 0;
  for (RebalanceMove& move : run_->moves) {
    failed = failed || move.state == MoveState::kFailed;
    done += move.state == MoveState::kDone ? 1 : 0;
    if (move.state == MoveState::kWaiting) move.state = MoveState::kLeft;
  }
  const bool whole = done == run_->moves.size();
  run_->state = failed ? RunState::kFailed : whole ? RunState::kDone : RunState::kStopped;
  deps_.events.add("rebalance-ended", fmt::format("rebalance {}: {} of {} move(s) done",
                                                  failed  ? "failed"
                                                  : whole ? "done"
                                                          : "stopped",
                                                  done, run_->moves.size()));
  touch();
}

}  // namespace ckpt::coordinator
