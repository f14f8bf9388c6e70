// SPDX-License-Identifier: Apache-2.0
#include "coordinator/cluster/removed_nodes.h"

#include <fmt/format.h>

#include "libckpt/base/clock.h"

namespace ckpt::coordinator {
namespace {

constexpr std::size_t kMaxRemovedNodes = 10'000;
constexpr const char* kRemovedSchema =
    "CREATE TABLE IF NOT EXISTS removed_nodes (name TEXT PRIMARY KEY, fenced INTEGER NOT NULL, "
    "removed_ms INTEGER NOT NULL)";

}  // namespace

Result<void> RemovedNodes::load() {
  CKPT_TRYV(store_.database().execute(kRemovedSchema));
  CKPT_TRY(statement, store_.database().prepare("SELECT name, fenced FROM removed_nodes"));
  while (true) {
    CKPT_TRY(row, statement.next());
    if (!row) return ok();
    removed_[statement.text(0)] = statement.integer(1) != 0;
  }
}

Result<void> RemovedNodes::check_room(const std::string& node) const {
  if (removed_.size() < kMaxRemovedNodes || removed_.contains(node)) return ok();
  return Error(ErrorCode::kRefused,
               fmt::format("{} nodes were removed from this cluster, and no more can be recorded: add one of "
                           "them again with `gpumigrate node add`",
                           removed_.size()));
}

Result<void> RemovedNodes::store(const std::string& node, bool fenced) {
  CKPT_TRYV(check_room(node));
  CKPT_TRY(statement, store_.database().prepare("INSERT OR REPLACE INTO removed_nodes VALUES (?1, ?2, ?3)"));
  statement.bind(1, node).bind(2, std::int64_t{fenced ? 1 : 0}).bind(3, wall_clock_ms());
  CKPT_TRYV(statement.run());
  removed_[node] = fenced;
  return ok();
}

Result<void> RemovedNodes::forget(const std::string& node) {
  CKPT_TRY(statement, store_.database().prepare("DELETE FROM removed_nodes WHERE name = ?1"));
  statement.bind(1, node);
  CKPT_TRYV(statement.run());
  removed_.erase(node);
  return ok();
}

std::optional<std::vector<wire::StopJob>> RemovedNodes::refusal(const std::string& node,
                                                                const wire::NodeInventory& has) {
  if (!removed_.contains(node)) return std::nullopt;
  std::vector<wire::StopJob> orders;
  for (const wire::JobInstance& instance : has.jobs) {
    if (is_over(instance.phase)) continue;
    const Job* job = jobs_.find(instance.job);
    const Incarnation fenced = job != nullptr ? job->fenced : jobs_.fenced_of_removed(instance.job);
    if (job == nullptr && instance.incarnation > fenced) continue;
    const bool stopped = job != nullptr && is_ended(job->state) && job->stop_requested;
    if (!stopped && instance.incarnation > fenced) {
      job_runner_.fact(instance.job, lifecycle::RunsUnmanaged{node, instance.incarnation});
      continue;
    }
    wire::StopJob& order = orders.emplace_back();
    order.job = instance.job;
    order.incarnation = instance.incarnation;
    order.grace_ns = stopped ? job->stop_grace_ms * kNanosPerMs : 0;
  }
  return orders;
}

}  // namespace ckpt::coordinator
