// SPDX-License-Identifier: Apache-2.0
#include "coordinator/maintenance/overcommit.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

namespace ckpt::coordinator {
namespace {

// The time in which a parked job's memory must become free. The job frees the memory shortly after it is
// parked, and its node reports that with its next inventory.
constexpr std::chrono::seconds kForTheMemory{20};
// The time to wait for the report that a job has ended. A job that ends on its own while it is being parked
// cannot be parked, and need not be.
constexpr std::chrono::seconds kForAnEnd{3};
constexpr std::chrono::seconds kPollInterval{1};
constexpr std::int64_t kDisplacingMoveMs = 600'000;

std::string name_of(const SubmitRequest& request) {
  return request.spec.name.empty() ? request.spec.argv.front() : request.spec.name;
}

std::vector<Displacement> displacements(const Preemption& preemption,
                                        const std::vector<std::optional<Place>>& targets) {
  std::vector<Displacement> displaced;
  for (const Occupant& victim : preemption.victims) {
    Displacement& going = displaced.emplace_back();
    going.job = victim.id;
    going.name = victim.name;
    going.priority = victim.priority;
    going.from = victim.place;
    going.to = targets.at(displaced.size() - 1);
  }
  return displaced;
}

}  // namespace

std::string to_text(const Displacement& displaced) {
  return fmt::format("{} ({}) {}", displaced.name, job_text(displaced.job),
                     displaced.to ? "moves to " + to_text(*displaced.to) : "is parked");
}

std::vector<Occupant> Overcommit::occupants(std::int32_t below, const std::vector<GpuView>& gpus) const {
  std::vector<Occupant> found;
  for (const Job& job : deps_.jobs.live()) {
    if (!holds_gpu(job.state) || job.spec.priority >= below) continue;
    Occupant& occupant = found.emplace_back();
    occupant.id = job.id;
    occupant.name = job.spec.name;
    occupant.place = job.place();
    occupant.priority = job.spec.priority;
    occupant.bytes = job.expected_bytes();
    occupant.started_ms = job.started_ms;
    occupant.obstacle = job.why_not_by_itself();
    if (occupant.obstacle.empty()) occupant.obstacle = deps_.states.why_not_movable(job);
    if (occupant.obstacle.empty()) occupant.move = deps_.planner.request_for(job, gpus);
  }
  return found;
}

Result<RunPlan> Overcommit::plan_for(const SubmitRequest& request) const {
  RunPlan plan;
  CKPT_TRY(placing, deps_.planner.plan(request));
  plan.placing = std::move(placing);
  if (!plan.placing.places.empty()) return plan;
  std::vector<GpuView> gpus = deps_.planner.gpu_views();
  std::vector<Occupant> others = occupants(request.spec.priority, gpus);
  find_places(gpus, others);
  const auto preemption = plan_preemption(gpus, Planner::request_for(request), request.spec.priority, others);
  if (!preemption) {
    plan.placing.reason += "; " + why_no_preemption(request.spec.priority, others);
    return plan;
  }
  plan.placing.places = {preemption->place};
  plan.placing.reason.clear();
  plan.displaced = displacements(*preemption, targets_of(std::move(gpus), preemption->victims));
  return plan;
}

control::Task<Result<std::vector<Displacement>>> Overcommit::preempt_for(SubmitRequest request) {
  while (busy_) co_await changed_.wait_until(std::chrono::steady_clock::now() + kPollInterval);
  busy_ = true;
  auto made = co_await preempt_alone(std::move(request));
  busy_ = false;
  changed_.notify();
  co_return made;
}

control::Task<Result<std::vector<Displacement>>> Overcommit::preempt_alone(SubmitRequest request) {
  CKPT_CO_TRY(plan, plan_for(request));
  if (plan.placing.places.empty()) co_return Error(ErrorCode::kRefused, plan.placing.reason);
  Displaced displaced = std::move(plan.displaced);
  if (displaced.empty()) co_return displaced;
  const std::string reason =
      fmt::format("frees GPU memory for {} (priority {})", name_of(request), request.spec.priority);
  for (Displacement& going : displaced) {
    auto gone = co_await displace(&going, reason);
    if (gone) continue;
    if (co_await wait_for_room(request, kForAnEnd)) co_return displaced;
    co_return std::move(gone).error();
  }
  CKPT_CO_TRYV(co_await wait_for_room(std::move(request), kForTheMemory));
  co_return displaced;
}

control::Task<Result<void>> Overcommit::displace(Displacement* displaced, std::string reason) {
  if (displaced->to) {
    const auto moved = co_await move(displaced->job, *displaced->to, reason);
    if (moved) co_return ok();
    spdlog::warn("job {} is parked, since it could not be moved to {}: {}", job_text(displaced->job),
                 to_text(*displaced->to), moved.error().to_string());
    displaced->to.reset();
  }
  co_return co_await deps_.images.park(displaced->job, true, std::move(reason));
}

control::Task<Result<void>> Overcommit::move(JobId id, Place to, std::string reason) {
  MigrateRequest request;
  request.to = to_text(to);
  request.options.max_downtime_ns = kDefaultMaxDowntimeNs;
  request.timeout_ms = kDisplacingMoveMs;
  request.reason = std::move(reason);
  CKPT_CO_TRY(begun, co_await deps_.moves.migrate(id, std::move(request)));
  const MigrationId migration_id = begun->id;
  while (true) {
    const Migration* migration = deps_.migrations.find(migration_id);
    if (migration == nullptr)
      co_return Error(ErrorCode::kInternal, "Migration " + migration_text(migration_id) + " was removed");
    if (!migration->open() && migration->result == MigrationResult::kDone) co_return ok();
    if (!migration->open()) co_return Error(ErrorCode::kAborted, migration->error);
    co_await deps_.migrations.changed().wait_until(std::chrono::steady_clock::now() + kPollInterval);
  }
}

control::Task<Result<void>> Overcommit::wait_for_room(SubmitRequest request, std::chrono::seconds max_wait) {
  const auto deadline = std::chrono::steady_clock::now() + max_wait;
  while (true) {
    CKPT_CO_TRY(plan, deps_.planner.plan(request));
    if (!plan.places.empty()) co_return ok();
    if (std::chrono::steady_clock::now() >= deadline)
      co_return Error(ErrorCode::kTimedOut,
                      "Jobs of lower priority were moved or parked, but no GPU has enough free memory yet: " +
                          plan.reason);
    co_await deps_.jobs.changed().wait_until(
        std::min(deadline, std::chrono::steady_clock::now() + kPollInterval));
  }
}

}  // namespace ckpt::coordinator
