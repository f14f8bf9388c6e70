// SPDX-License-Identifier: Apache-2.0
#include "coordinator/maintenance/drain_table.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "libckpt/record/document.h"

namespace ckpt::coordinator {
namespace {

constexpr const char* kDrainSchema =
    "CREATE TABLE IF NOT EXISTS drains (id INTEGER PRIMARY KEY AUTOINCREMENT, document TEXT NOT NULL)";

}  // namespace

Result<void> DrainTable::load() {
  CKPT_TRYV(store_.database().execute(kDrainSchema));
  CKPT_TRY(statement, store_.database().prepare("SELECT id, document FROM drains ORDER BY id"));
  while (true) {
    CKPT_TRY(row, statement.next());
    if (!row) return ok();
    const auto id = static_cast<DrainId>(statement.integer(0));
    try {
      Drain drain = record::from_text<Drain>(statement.text(1));
      drain.id = id;
      drains_.emplace(id, std::move(drain));
    } catch (const std::exception& e) {
      return Error(ErrorCode::kCorrupt,
                   "Row " + std::to_string(id) + " of table drains cannot be decoded: " + e.what());
    }
  }
}

Result<DrainId> DrainTable::add(Drain drain) {
  CKPT_TRY(statement, store_.database().prepare("INSERT INTO drains VALUES (?1, ?2)"));
  CKPT_TRY(id, store_.next_id_of("drain", drains_.empty() ? 0 : drains_.rbegin()->first));
  drain.id = id;
  CKPT_TRYV(statement.bind(1, static_cast<std::int64_t>(id)).bind(2, record::to_text(drain)).run());
  drains_.emplace(id, std::move(drain));
  return id;
}

Result<void> DrainTable::save(Drain& drain) {
  ++drain.revision;
  changed_.notify();
  CKPT_TRY(statement, store_.database().prepare("UPDATE drains SET document = ?2 WHERE id = ?1"));
  statement.bind(1, static_cast<std::int64_t>(drain.id)).bind(2, record::to_text(drain));
  return statement.run();
}

Drain* DrainTable::find(DrainId id) {
  const auto at = drains_.find(id);
  return at == drains_.end() ? nullptr : &at->second;
}

Drain* DrainTable::open_of(const Scope& scope) {
  const auto at = std::find_if(drains_.begin(), drains_.end(), [&](const auto& entry) {
    return entry.second.open() && entry.second.scope == scope;
  });
  return at == drains_.end() ? nullptr : &at->second;
}

bool DrainTable::is_drained(const Place& place) const {
  return std::any_of(drains_.begin(), drains_.end(), [&place](const auto& entry) {
    return entry.second.open() && entry.second.scope.covers(place);
  });
}

void DrainTable::prune(const Retention& retention) {
  std::size_t surplus = 0;
  for (const auto& [id, drain] : drains_) surplus += drain.open() ? 0 : 1;
  surplus -= std::min(surplus, retention.count);
  std::vector<DrainId> over;
  for (const auto& [id, drain] : drains_) {
    if (over.size() >= Retention::kBatch) break;
    if (drain.open()) continue;
    if (surplus == 0 && drain.ended_ms >= retention.since_ms) break;
    if (surplus > 0) --surplus;
    // The drain stays while one of its restores is open, because the restore needs its drain.
    const bool restoring = std::any_of(drain.jobs.begin(), drain.jobs.end(), [](const DrainJob& entry) {
      return entry.state == DrainJobState::kRestoring;
    });
    if (!restoring && drain.ended_ms <= retention.fresh_ms) over.push_back(id);
  }
  if (over.empty()) return;
  if (auto removed = remove(over); !removed)
    return spdlog::error("{} drains were not removed: {}", over.size(), removed.error().to_string());
  for (const DrainId id : over) drains_.erase(id);
}

Result<void> DrainTable::remove(const std::vector<DrainId>& ids) {
  CKPT_TRY(transaction, Transaction::begin(store_.database()));
  for (const DrainId id : ids) {
    CKPT_TRY(statement, store_.database().prepare("DELETE FROM drains WHERE id = ?1"));
    CKPT_TRYV(statement.bind(1, static_cast<std::int64_t>(id)).run());
  }
  return transaction.commit();
}

}  // namespace ckpt::coordinator
