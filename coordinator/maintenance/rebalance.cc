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
    const auto at = index_of(problem, job.place());
    if (!at) continue;  // the job's node has not connected since the coordinator started
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
    return Error(
        ErrorCode::kRefused,
        "A rebalance is running: `gpumigrate rebalance --stop` stops the rebalance after its open moves");
  const std::uint64_t revision = run_ ? run_->revision + 1 : 1;
  run_ = new_run(problem(), parallel, revision);
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

control::Task<> Rebalancer::carry_out() {
  while (!is_over(*run_, stopping_)) {
    if (const auto next = begin_next(*run_, stopping_)) {
      control::spawn(deps_.executor, "rebalance move", move(*next));
      continue;
    }
    co_await changed_.wait_until(std::chrono::steady_clock::now() + kRebalancePollInterval);
  }
  end_run();
}

control::Task<> Rebalancer::move(std::size_t index) {
  const auto moved = co_await migrate(index);
  end_move(*run_, index, moved);
  touch();
}

control::Task<Result<void>> Rebalancer::migrate(std::size_t index) {
  const PackMove& planned = run_->plan.moves[index];
  MigrateRequest request;
  request.to = to_text(run_->problem.gpus[planned.to].place);
  request.options.strategy = wire::MigrateStrategy::kLive;
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

void Rebalancer::end_run() {
  const std::size_t done = finish(*run_);
  deps_.events.add("rebalance-ended", fmt::format("rebalance {}: {} of {} move(s) done",
                                                  record::name_of(run_->state), done, run_->moves.size()));
  touch();
}

}  // namespace ckpt::coordinator
