// SPDX-License-Identifier: Apache-2.0
#include "coordinator/migration/migration_table.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "libckpt/base/clock.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::coordinator {

Result<void> MigrationTable::load() {
  CKPT_TRY(stored, store_.migrations());
  for (Migration& m : stored) insert(std::move(m));
  CKPT_TRY(removed, store_.highest_removed_migration());
  removed_up_to_ = removed;
  return ok();
}

Result<Migration*> MigrationTable::create(Migration m) {
  CKPT_TRY(id, store_.next_migration_id());
  m.id = id;
  CKPT_TRYV(store_.put(m));
  return &insert(std::move(m));
}

Migration& MigrationTable::insert(Migration migration) {
  const MigrationId id = migration.id;
  Migration& m = migrations_.emplace(id, std::move(migration)).first->second;
  index_.add(m);
  newest_end_ms_ = std::max(newest_end_ms_, m.ended_ms);
  return m;
}

void MigrationTable::save(Migration& m) {
  ++m.revision;
  // An undecided migration without a journal record is not stored, because it is found again after a restart.
  if (m.forgotten && m.phase < MigrationPhase::kClosing) return changed_.notify();
  if (auto stored = store_.put(m); !stored)
    spdlog::error("migration {} was not stored: {}", label(m), stored.error().to_string());
  changed_.notify();
}

void MigrationTable::touch(Migration& m) {
  ++m.revision;
  changed_.notify();
}

void MigrationTable::claim(JobId whole, std::vector<MoveClaim> claims) {
  if (claims.empty())
    claims_.erase(whole);
  else
    claims_[whole] = std::move(claims);
}

void MigrationTable::close(Migration& m) {
  m.phase = MigrationPhase::kClosed;
  m.ended_ms = wall_clock_ms();
  newest_end_ms_ = std::max(newest_end_ms_, m.ended_ms);
  index_.close(m);
  plans_.erase(m.id);
}

const wire::MigrationPlan* MigrationTable::plan_of(MigrationId id) const {
  const auto at = plans_.find(id);
  return at == plans_.end() ? nullptr : &at->second;
}

Migration* MigrationTable::find(MigrationId id) {
  const auto at = migrations_.find(id);
  return at == migrations_.end() ? nullptr : &at->second;
}

const Migration* MigrationTable::find(MigrationId id) const {
  const auto at = migrations_.find(id);
  return at == migrations_.end() ? nullptr : &at->second;
}

std::optional<MigrationId> MigrationTable::find_meant(MigrationId given) const {
  const auto at = wire::find_meant(migrations_, given);
  return at == migrations_.end() ? std::nullopt : std::optional(at->first);
}

bool MigrationTable::was_removed(MigrationId id) const {
  return id <= removed_up_to_ && !migrations_.contains(id);
}

std::vector<std::reference_wrapper<const Migration>> MigrationTable::open() const {
  std::vector<std::reference_wrapper<const Migration>> found;
  found.reserve(index_.open().size());
  for (const MigrationId id : index_.open()) found.emplace_back(migrations_.at(id));
  visited_ += found.size();
  return found;
}

// Returns the job's open migration. Only the newest can be open, because the next migration begins after it
// is decided.
const Migration* MigrationTable::open_of(JobId job) const {
  const auto open = index_.newest_open_of(job);
  if (!open) return nullptr;
  const Migration& newest = migrations_.at(*open);
  return newest.phase < MigrationPhase::kClosing ? &newest : nullptr;
}

bool MigrationTable::is_closing(JobId job) const {
  const auto newest = index_.newest_of(job);
  return newest && migrations_.at(*newest).phase == MigrationPhase::kClosing;
}

bool MigrationTable::is_newest_of_job(const Migration& m) const {
  const auto newest = index_.newest_of(m.job);
  return !newest || *newest == m.id;
}

void MigrationTable::mark_settled(MigrationId id) {
  if (unsettled_.erase(id) == 0) return;
  Migration* m = find(id);
  if (m == nullptr) return;
  m->settled = true;
  unsaved_settled_.insert(id);
}

bool MigrationTable::unsettled_of(JobId job) const {
  const std::set<MigrationId> of = index_.of(job);
  return std::any_of(of.begin(), of.end(), [this](MigrationId id) { return unsettled_.contains(id); });
}

void MigrationTable::store_settled() {
  std::vector<const Migration*> settled;
  for (const MigrationId id : unsaved_settled_) settled.push_back(&migrations_.at(id));
  if (settled.empty()) return;
  if (auto stored = store_.put_migrations(settled); !stored)
    return spdlog::error("{} migrations were not stored: {}", settled.size(), stored.error().to_string());
  unsaved_settled_.clear();
}

bool MigrationTable::is_settled_in_store(const Migration& m) const {
  return m.settled && !unsaved_settled_.contains(m.id);
}

std::vector<MigrationId> MigrationTable::remove_old(const Retention& retention,
                                                    const std::function<bool(const Migration&)>& may_leave) {
  store_settled();
  const std::size_t closed = migrations_.size() - index_.open().size();
  std::size_t surplus = closed - std::min(closed, retention.count);
  std::vector<MigrationId> over;
  for (const auto& [id, m] : migrations_) {
    if (over.size() >= Retention::kBatch) break;
    if (m.open()) continue;
    if (surplus == 0 && m.ended_ms >= retention.since_ms) break;
    if (surplus > 0) --surplus;
    if (m.ended_ms <= retention.fresh_ms && may_leave(m)) over.push_back(id);
  }
  if (over.empty()) return over;
  if (auto removed = store_.remove_migrations(over); !removed) {
    spdlog::error("{} migrations were not removed: {}", over.size(), removed.error().to_string());
    return {};
  }
  removed_up_to_ = std::max(removed_up_to_, over.back());
  for (const MigrationId id : over) erase(id);
  return over;
}

void MigrationTable::erase(MigrationId id) {
  const auto at = migrations_.find(id);
  index_.remove(at->second);
  unsettled_.erase(id);
  unsaved_settled_.erase(id);
  plans_.erase(id);
  migrations_.erase(at);
}

}  // namespace ckpt::coordinator
