// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gangs/gang_watch.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

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
    if (failed != nullptr) end_rest(*gang, *failed);
  }
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
      spdlog::error("rank {} is not stopped: {}", label(*rank), begun.assume_error().to_string());
  }
}

}  // namespace ckpt::coordinator
