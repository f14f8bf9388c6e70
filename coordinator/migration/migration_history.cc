// SPDX-License-Identifier: Apache-2.0
// The part of MigrationTable that knows which migrations need not stay.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "coordinator/migration/migrations.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::coordinator {

void MigrationTable::index(const Migration& m) {
  of_job_[m.job].insert(m.id);
  if (m.open()) {
    open_.insert(m.id);
    MigrationId& newest = open_of_job_[m.job];
    newest = std::max(newest, m.id);
  }
  newest_end_ms_ = std::max(newest_end_ms_, m.ended_ms);
}

std::optional<MigrationId> MigrationTable::find_meant(MigrationId said) const {
  const auto at = wire::find_meant(migrations_, said);
  return at == migrations_.end() ? std::nullopt : std::optional(at->first);
}

void MigrationTable::erase(MigrationId id) {
  const auto at = migrations_.find(id);
  if (const auto of = of_job_.find(at->second.job); of != of_job_.end()) {
    of->second.erase(id);
    if (of->second.empty()) of_job_.erase(of);
  }
  driver_.forget(id);
  unsettled_.erase(id);
  unsaved_settled_.erase(id);
  plans_.erase(id);
  migrations_.erase(at);
}

void MigrationTable::look_whether_settled(MigrationId id) {
  const migration::CoordinatorState* state = driver_.switches().find(id);
  if (state != nullptr && !migration::is_settled(*state)) return;
  if (unsettled_.erase(id) == 0) return;
  const auto at = migrations_.find(id);
  if (at == migrations_.end()) return;
  at->second.settled = true;
  unsaved_settled_.insert(id);
}

bool MigrationTable::was_removed(MigrationId id) const {
  return id <= removed_up_to_ && !migrations_.contains(id);
}

// Without a switch nothing is known that an agent could be told.
bool MigrationTable::may_leave(const Migration& m) const {
  if (m.open() || driver_.is_busy(m.id) || (!m.settled && driver_.switches().find(m.id) != nullptr))
    return false;
  const auto of = of_job_.find(m.job);
  if (of == of_job_.end() || *of->second.rbegin() != m.id) return true;
  const Job* job = parts_.jobs.find(m.job);
  return job == nullptr || is_ended(job->state);
}

void MigrationTable::store_settled() {
  std::vector<const Migration*> news;
  for (const MigrationId id : unsaved_settled_) news.push_back(&migrations_.at(id));
  if (news.empty()) return;
  if (auto stored = parts_.store.put_migrations(news); !stored)
    return spdlog::error("{} migrations were not stored: {}", news.size(), stored.assume_error().to_string());
  unsaved_settled_.clear();
}

bool MigrationTable::forget_old(const Retention& keep) {
  store_settled();
  const std::size_t closed = migrations_.size() - open_.size();
  std::size_t surplus = closed - std::min(closed, keep.count);
  std::vector<MigrationId> over;
  for (const auto& [id, m] : migrations_) {
    if (over.size() >= Retention::kBatch) break;
    if (m.open()) continue;
    if (surplus == 0 && m.ended_ms >= keep.since_ms) break;
    if (surplus > 0) --surplus;
    if (m.ended_ms <= keep.fresh_ms && may_leave(m)) over.push_back(id);
  }
  if (over.empty()) return false;
  if (auto removed = parts_.store.remove_migrations(over); !removed) {
    spdlog::error("{} migrations were not removed: {}", over.size(), removed.assume_error().to_string());
    return false;
  }
  removed_up_to_ = std::max(removed_up_to_, over.back());
  for (const MigrationId id : over) erase(id);
  return over.size() >= Retention::kBatch;
}

}  // namespace ckpt::coordinator
