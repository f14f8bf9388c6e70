// SPDX-License-Identifier: Apache-2.0
#include "coordinator/maintenance/overcommit.h"

#include <fmt/format.h>

namespace ckpt::coordinator {
namespace {

// A parked job frees its memory a moment later, and its node reports that with its next inventory.
constexpr std::chrono::seconds kForTheMemory{20};
// One that ends by itself while it is parked cannot be parked, and needs not: its node reports a
// moment later that it has ended.
constexpr std::chrono::seconds kForAnEnd{3};
constexpr std::chrono::seconds kLookAgain{1};

std::string name_of(const SubmitRequest& request) {
  return request.spec.name.empty() ? request.spec.argv.front() : request.spec.name;
}

}  // namespace

std::vector<Occupant> Overcommit::occupants() const {
  std::vector<Occupant> found;
  for (const Job& job : parts_.jobs.live()) {
    if (!holds_gpu(job.state)) continue;
    Occupant& occupant = found.emplace_back();
    occupant.id = job.id;
    occupant.name = job.spec.name;
    occupant.place = job.ranks.front().place;
    occupant.priority = job.spec.priority;
    occupant.bytes = job.expected_bytes();
    occupant.started_ms = job.started_ms;
    occupant.obstacle = parts_.states.why_not_movable(job);
  }
  return found;
}

control::Task<Result<void>> Overcommit::preempt_for(SubmitRequest request) {
  while (busy_) co_await changed_.wait_until(std::chrono::steady_clock::now() + kLookAgain);
  busy_ = true;
  auto made = co_await preempt_alone(std::move(request));
  busy_ = false;
  changed_.notify();
  co_return made;
}

control::Task<Result<void>> Overcommit::preempt_alone(SubmitRequest request) {
  CKPT_CO_TRY(plan, parts_.planner.plan(request));
  if (plan.to) co_return ok();
  const auto preemption = plan_preemption(parts_.planner.gpu_views(), Planner::request_for(request),
                                          request.spec.priority, occupants());
  if (!preemption)
    co_return Error(ErrorCode::kRefused,
                    plan.reason + fmt::format("; parking jobs of a priority below {} would not help",
                                              request.spec.priority));
  const std::string why =
      fmt::format("makes room for {} (priority {})", name_of(request), request.spec.priority);
  for (const Occupant& victim : preemption->victims) {
    auto parked = co_await parts_.images.park(victim.id, true, why);
    if (parked) continue;
    if (co_await wait_for_room(request, kForAnEnd)) co_return ok();
    co_return std::move(parked);
  }
  co_return co_await wait_for_room(std::move(request), kForTheMemory);
}

control::Task<Result<void>> Overcommit::wait_for_room(SubmitRequest request, std::chrono::seconds most) {
  const auto deadline = std::chrono::steady_clock::now() + most;
  while (true) {
    CKPT_CO_TRY(plan, parts_.planner.plan(request));
    if (plan.to) co_return ok();
    if (std::chrono::steady_clock::now() >= deadline)
      co_return Error(ErrorCode::kTimedOut,
                      "Jobs of lower priority were parked, but there is no room yet: " + plan.reason);
    co_await parts_.jobs.changed().wait_until(
        std::min(deadline, std::chrono::steady_clock::now() + kLookAgain));
  }
}

}  // namespace ckpt::coordinator
