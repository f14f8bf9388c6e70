// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gangs/gang_watch.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>

#include "coordinator/images/wait_for_change.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {

void GangWatch::start() {
  control::spawn(parts_.executor, "gangs", run());
}

control::Task<> GangWatch::run() {
  while (true) {
    look();
    co_await wait_for_change(parts_.jobs);
  }
}

void GangWatch::look() {
  std::set<JobId> alive;
  for (const Job& job : parts_.jobs.live()) {
    if (job.spec.gang.id != 0) alive.insert(job.spec.gang.id);
  }
  for (const JobId id : alive) {
    const auto gang = find_gang(parts_.jobs, id);
    const Job* failed = gang ? first_failed(*gang) : nullptr;
    if (failed != nullptr)
      end_rest(*gang, *failed);
    else if (gang)
      park_rest(*gang);
  }
}

void GangWatch::park_rest(const Gang& gang) {
  const auto rests = [](const Job* rank) { return rank->state == JobState::kParked && !rank->operation; };
  const auto parked = std::find_if(gang.ranks.begin(), gang.ranks.end(), rests);
  if (parked == gang.ranks.end()) return;
  const std::string why = fmt::format("rank {} {}", (*parked)->ranks.front().rank, kRestsWithOthers);
  for (const Job* rank : gang.ranks) {
    const bool is_at_it = rank->operation && rank->operation->goal == OperationGoal::kParked;
    if (rests(rank) || is_at_it || is_ended(rank->state) || rank->stop_requested) continue;
    if (auto begun = park(*rank, why); !begun)
      spdlog::error("rank {} does not rest: {}", label(*rank), begun.error().to_string());
  }
}

Result<void> GangWatch::park(const Job& rank, const std::string& why) {
  if (rank.operation) return parts_.cancels.give_up_start(rank.id, why);
  const auto named = parse_image_id(rank.segments.back().image);
  if (!named) return Error(ErrorCode::kNotFound, "It is not known from which image it came");
  CKPT_TRY(listed, parts_.catalog.find(*named));
  ImageOperation operation;
  operation.goal = OperationGoal::kParked;
  operation.stage = OperationStage::kEnding;
  operation.verb = "park";
  operation.why = why;
  operation.by_user = true;
  operation.image = listed.image;
  operation.ended_ms = listed.image.barrier_ms;  // alone it did no work
  CKPT_TRYV(parts_.runner.begin(rank.id, std::move(operation)));
  return ok();
}

void GangWatch::end_rest(const Gang& gang, const Job& failed) {
  bool is_told = false;
  for (Job* rank : gang.ranks) {
    if (is_ended(rank->state) || rank->stop_requested) continue;
    if (!is_told)
      parts_.events.add("gang-ends",
                        fmt::format("the other ranks of {} are stopped: {}", gang.name, reason_of(gang)),
                        failed.node(), failed.id);
    is_told = true;
    if (auto begun = parts_.stops.begin(*rank, kGrace.count()); !begun)
      spdlog::error("rank {} is not stopped: {}", label(*rank), begun.error().to_string());
  }
}

}  // namespace ckpt::coordinator
