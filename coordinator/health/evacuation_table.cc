// SPDX-License-Identifier: Apache-2.0
#include "coordinator/health/evacuation_table.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "libckpt/record/document.h"

namespace ckpt::coordinator {
namespace {

constexpr const char* kEvacuationSchema =
    "CREATE TABLE IF NOT EXISTS evacuations (id INTEGER PRIMARY KEY AUTOINCREMENT, document TEXT NOT NULL)";

}  // namespace

Result<void> EvacuationTable::load() {
  CKPT_TRYV(store_.database().execute(kEvacuationSchema));
  CKPT_TRY(statement, store_.database().prepare("SELECT id, document FROM evacuations ORDER BY id"));
  while (true) {
    CKPT_TRY(row, statement.next());
    if (!row) return ok();
    const auto id = static_cast<EvacuationId>(statement.integer(0));
    try {
      Evacuation evacuation = record::from_text<Evacuation>(statement.text(1));
      evacuation.id = id;
      if (evacuation.open()) open_.insert(id);
      evacuations_.emplace(id, std::move(evacuation));
    } catch (const std::exception& e) {
      return Error(ErrorCode::kCorrupt,
                   "Row " + std::to_string(id) + " of table evacuations cannot be decoded: " + e.what());
    }
  }
}

Result<void> EvacuationTable::store(std::vector<Evacuation> decided,
                                    const std::function<Result<void>()>& beside) {
  CKPT_TRY(transaction, Transaction::begin(store_.database()));
  for (Evacuation& e : decided) {
    const auto known = std::find_if(open_.begin(), open_.end(), [&](EvacuationId id) {
      const Evacuation& other = evacuations_.at(id);
      return other.job == e.job && other.from == e.from;
    });
    if (known != open_.end()) {
      Evacuation graver = evacuations_.at(*known);
      escalate(graver, e);
      e = std::move(graver);
      CKPT_TRY(update, store_.database().prepare("UPDATE evacuations SET document = ?2 WHERE id = ?1"));
      CKPT_TRYV(update.bind(1, static_cast<std::int64_t>(e.id)).bind(2, record::to_text(e)).run());
    } else {
      CKPT_TRY(insert, store_.database().prepare("INSERT INTO evacuations VALUES (?1, ?2)"));
      CKPT_TRY(id, store_.next_id_of("evacuation", evacuations_.empty() ? 0 : evacuations_.rbegin()->first));
      e.id = id;
      CKPT_TRYV(insert.bind(1, static_cast<std::int64_t>(id)).bind(2, record::to_text(e)).run());
    }
  }
  CKPT_TRYV(beside());
  CKPT_TRYV(transaction.commit());
  for (Evacuation& e : decided) {
    open_.insert(e.id);
    evacuations_[e.id] = std::move(e);
  }
  return ok();
}

void EvacuationTable::save(const Evacuation& e) {
  if (!e.open()) open_.erase(e.id);
  auto statement = store_.database().prepare("UPDATE evacuations SET document = ?2 WHERE id = ?1");
  auto stored = statement
                    ? statement->bind(1, static_cast<std::int64_t>(e.id)).bind(2, record::to_text(e)).run()
                    : Result<void>(statement.error());
  if (!stored)
    spdlog::error("evacuation {} was not stored: {}", evacuation_text(e.id), stored.error().to_string());
}

std::vector<const Evacuation*> EvacuationTable::pointers() const {
  std::vector<const Evacuation*> all;
  for (const auto& [id, e] : evacuations_) all.push_back(&e);
  return all;
}

void EvacuationTable::prune(const Retention& retention) {
  const std::size_t ended = evacuations_.size() - open_.size();
  std::size_t surplus = ended - std::min(ended, retention.count);
  std::vector<EvacuationId> over;
  for (const auto& [id, e] : evacuations_) {
    if (over.size() >= Retention::kBatch) break;
    if (e.open()) continue;
    if (surplus == 0 && e.ended_ms >= retention.since_ms) break;
    if (surplus > 0) --surplus;
    if (e.ended_ms <= retention.fresh_ms) over.push_back(id);
  }
  if (over.empty()) return;
  if (auto removed = remove(over); !removed)
    return spdlog::error("{} evacuations were not removed: {}", over.size(), removed.error().to_string());
  for (const EvacuationId id : over) evacuations_.erase(id);
}

Result<void> EvacuationTable::remove(const std::vector<EvacuationId>& ids) {
  CKPT_TRY(transaction, Transaction::begin(store_.database()));
  for (const EvacuationId id : ids) {
    CKPT_TRY(statement, store_.database().prepare("DELETE FROM evacuations WHERE id = ?1"));
    CKPT_TRYV(statement.bind(1, static_cast<std::int64_t>(id)).run());
  }
  return transaction.commit();
}

}  // namespace ckpt::coordinator
