// SPDX-License-Identifier: Apache-2.0
// A journal of one kind of records. `Traits` has
//   Record, Key            Key: a record is the newest of its key
//   key_of(const Record&), plan_of(Record&), encode(const Record&), decode(bytes)
//
// The plan is by far the largest part of a record, and it is equal in all records of a key. The first record
// stores the plan, and later records refer to that record. A file in the former format is read, too, and
// stays in that format until it is compacted.
//
// Threads, ownership, errors: as journal_file.h.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libckpt/protocol/handover/journal_file.h"

namespace ckpt::migration {

template <class Traits>
class BasicJournal {
 public:
  using Record = typename Traits::Record;
  using Copy = JournalFile::Copy;
  using Durability = JournalFile::Durability;
  static constexpr std::uint64_t kMaxBytes = JournalFile::kMaxBytes;

  // Opens or creates the file and reads its records.
  static Result<BasicJournal> open(const std::string& path) {
    Entries entries;
    const auto handler = [&](std::span<const std::byte> body, bool refers, std::uint64_t at) -> Result<void> {
      CKPT_TRY(record, Traits::decode(body));
      Entry entry{std::move(record)};
      if (refers) entry.plan_at = entries.plan_of(entry.record);
      if (refers && (!entry.plan_at || !Traits::plan_of(entry.record).empty()))
        return Error(ErrorCode::kCorrupt,
                     "Journal " + path + " has a record at byte " + std::to_string(at) + " without its plan");
      entries.add(std::move(entry));
      return ok();
    };
    CKPT_TRY(file, JournalFile::open(path, handler));
    return BasicJournal(std::move(file), std::move(entries));
  }

  // Returns all records, oldest first: those read at open and those appended since then. Each record includes
  // its plan. Makes a copy, for a start or for tests.
  [[nodiscard]] std::vector<Record> records() const {
    std::vector<Record> records;
    records.reserve(entries_.all.size());
    for (const Entry& entry : entries_.all) records.push_back(entries_.to_record(entry));
    return records;
  }
  [[nodiscard]] std::uint64_t torn_bytes() const noexcept { return file_.torn_bytes(); }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return file_.size_bytes(); }
  [[nodiscard]] Result<Copy> copy() const { return file_.copy(); }

  Result<void> append(const Record& record, Durability durability = Durability::kSynced) {
    Entry entry = to_entry(record);
    const auto body = Traits::encode(entry.record);
    CKPT_TRYV(file_.append(body, entry.plan_at.has_value(), durability));
    entries_.add(std::move(entry));
    return ok();
  }
  // Reserves disk space for `bytes` more bytes. Call this before a migration begins; reserve_for() is enough
  // for one migration.
  static constexpr std::uint64_t kReserveBytes = 256 << 10;
  // Returns the disk space to reserve for one migration. In a file of the former format, each record of a
  // migration contains its plan.
  static constexpr std::uint64_t reserve_for(std::uint64_t plan_bytes) {
    return kReserveBytes + 8 * plan_bytes;
  }
  Result<void> reserve(std::uint64_t bytes = kReserveBytes) { return file_.reserve(bytes); }
  // Rewrites the file with only the newest record of each key, without the records for which `forget` returns
  // true. A newest record must remain while other parties may query its job (SW-3).
  Result<void> compact(const std::function<bool(const Record&)>& forget) {
    std::map<Key, const Entry*> newest;
    for (const Entry& entry : entries_.all) newest[Traits::key_of(entry.record)] = &entry;
    Entries retained;
    std::vector<JournalFile::Body> bodies;
    for (const auto& [key, entry] : newest) {
      if (forget(entry->record)) continue;
      Record record = entries_.to_record(*entry);
      bodies.push_back(Traits::encode(record));
      retained.add({std::move(record)});
    }
    CKPT_TRYV(file_.replace(bodies));
    entries_ = std::move(retained);
    return ok();
  }

 private:
  using Key = typename Traits::Key;
  // An entry in the form that the file stores.
  struct Entry {
    Record record;
    std::optional<std::size_t> plan_at = {};  // the index of the entry that has this record's plan; unset if
                                              // the record has its own
  };
  struct Entries {
    std::vector<Entry> all;
    std::map<Key, std::size_t> plan_at;  // the index of the newest entry that has a plan, for each key

    [[nodiscard]] std::optional<std::size_t> plan_of(const Record& record) const {
      const auto at = plan_at.find(Traits::key_of(record));
      return at == plan_at.end() ? std::nullopt : std::optional(at->second);
    }
    [[nodiscard]] Record to_record(const Entry& entry) const {
      Record record = entry.record;
      if (entry.plan_at) Traits::plan_of(record) = Traits::plan_of(all[*entry.plan_at].record);
      return record;
    }
    void add(Entry entry) {
      if (!Traits::plan_of(entry.record).empty()) plan_at[Traits::key_of(entry.record)] = all.size();
      all.push_back(std::move(entry));
    }
  };

  BasicJournal(JournalFile file, Entries entries) : file_(std::move(file)), entries_(std::move(entries)) {}
  Entry to_entry(const Record& record) const {
    Entry entry{record};
    const auto at = file_.may_refer() ? entries_.plan_of(record) : std::nullopt;
    if (!at || Traits::plan_of(entries_.all[*at].record) != Traits::plan_of(record)) return entry;
    entry.plan_at = at;
    Traits::plan_of(entry.record) = {};
    return entry;
  }

  JournalFile file_;
  Entries entries_;
};

}  // namespace ckpt::migration
