// SPDX-License-Identifier: Apache-2.0
// One party's append-only journal: a file of framed records, each durable (fdatasync) before append()
// returns.
//
// The file is extended ahead in zeroed, synced steps, so an append in the pause is one overwrite and one
// fdatasync without metadata. A full disk shows at reserve(), before a migration touches anything. A torn
// last record (its append never returned) is cut off when the file is opened. A damaged record with intact
// ones behind it is kCorrupt: nothing is guessed.
//
// The plan is by far the largest part of a record, and the same in all of a migration. The first record of a
// party has it, later ones refer to it. A file of before is read, too, and written as it is until it is
// compacted.
//
// Threads: one at a time. Ownership: holds the file, locked (flock): a second opener gets kRefused. Errors:
// append and reserve fail cleanly with kRefused (no space, size limit), nothing written. kIo means that the
// record's fate is unknown: the process must end and read its journal again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"
#include "libckpt/protocol/handover/records.h"

namespace ckpt::migration {

class Journal {
 public:
  // Opens or makes the file (mode 0600) and reads what it holds.
  static Result<Journal> open(const std::string& path);

  // All records, oldest first, as read at open and appended since. Each whole: a copy for a start, or for
  // tests.
  [[nodiscard]] std::vector<Record> records() const;
  [[nodiscard]] std::uint64_t torn_bytes() const noexcept { return torn_bytes_; }  // cut off at open
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return end_; }
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{256}
                                             << 20;  // of the file; beyond it append refuses

  // The file as it is now: its first `bytes` bytes are whole records, whatever is appended or compacted
  // later.
  struct Copy {
    UniqueFd fd;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] Result<Copy> copy() const;

  Result<void> append(const Record& record);
  // Space for `bytes` more is on the disk. Call before a migration begins: reserve_for() is enough for one.
  static constexpr std::uint64_t kReserveBytes = 256 << 10;
  // In a file of before, each record of a migration has its plan.
  static constexpr std::uint64_t reserve_for(std::uint64_t plan_bytes) {
    return kReserveBytes + 8 * plan_bytes;
  }
  Result<void> reserve(std::uint64_t bytes = kReserveBytes);
  // Rewrites the file with only the newest record of each (migration, party), without those for which
  // `forget` is true, and renames it into place. A newest record stays for as long as its job may be asked
  // about (SW-3).
  Result<void> compact(const std::function<bool(const Record&)>& forget);

 private:
  using Key = std::pair<MigrationId, Party>;
  // As it is in the file.
  struct Entry {
    Record record;
    std::optional<std::size_t> plan_at = {};  // it is without its plan, which that entry has
  };

  Journal(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  Result<void> load();
  Result<void> start();
  // Returns where it ends. The header has been checked.
  Result<std::uint64_t> read_frames(const std::string& text);
  Result<void> extend(std::uint64_t wanted_end);
  [[nodiscard]] std::optional<std::size_t> plan_of(const Record& record) const;
  [[nodiscard]] Entry to_entry(const Record& record) const;
  [[nodiscard]] Record to_record(const Entry& entry) const;
  void keep(Entry entry);

  std::string path_;
  UniqueFd fd_;
  std::vector<Entry> entries_;
  std::map<Key, std::size_t> plan_at_;  // the newest entry with a plan
  bool may_refer_ = true;               // by the file's version
  std::uint64_t end_ = 0;               // behind the last record
  std::uint64_t capacity_ = 0;          // zeroed and synced up to here
  std::uint64_t torn_bytes_ = 0;
  bool broken_ = false;  // an append with unknown fate
};

}  // namespace ckpt::migration
