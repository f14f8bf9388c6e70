// SPDX-License-Identifier: Apache-2.0
// Packs: files of records. A pack is written from front to back, gets an index and a tail, is synced and
// renamed to its name, and never changes again. A file without such a name is a leftover of an interrupted
// writer and is ignored.
//
// Threads: a PackWriter belongs to one thread at a time; the functions are pure but for the file. Errors:
// kRefused where the budget or the disk has no space; kCorrupt for damage.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/store/vault/files.h"
#include "libckpt/store/vault/format.h"

namespace ckpt::vault {

// The bytes that a vault may take. Thread-safe.
class Budget {
 public:
  explicit Budget(std::uint64_t limit_bytes) : limit_(limit_bytes) {}  // 0: none
  Result<void> take(std::uint64_t bytes);
  void take_anyway(std::uint64_t bytes) noexcept { used_ += bytes; }
  void give_back(std::uint64_t bytes) noexcept { used_ -= bytes; }
  [[nodiscard]] std::uint64_t used() const noexcept { return used_; }
  [[nodiscard]] std::uint64_t limit() const noexcept { return limit_; }

 private:
  const std::uint64_t limit_;
  std::atomic<std::uint64_t> used_{0};
};

[[nodiscard]] std::string pack_name(std::uint64_t number);
[[nodiscard]] std::uint64_t pack_number(const std::string& name);  // 0: not a pack's

class PackWriter {
 public:
  // `over_budget`: a collection may exceed the limit by the pack it is writing, since it gives back more.
  static Result<std::unique_ptr<PackWriter>> create(Files& files, Budget& budget, const std::string& folder,
                                                    std::uint64_t number, bool over_budget);
  // Without publish() its file is removed, as far as that can be.
  ~PackWriter();
  PackWriter(const PackWriter&) = delete;
  PackWriter& operator=(const PackWriter&) = delete;

  // The record's offset.
  Result<std::uint64_t> append(const RecordHead& head, std::span<const std::byte> payload);
  [[nodiscard]] std::uint64_t bytes() const noexcept { return end_; }
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] const std::vector<IndexEntry>& index() const noexcept { return index_; }
  // Index and tail are written; nothing is appended after it.
  Result<void> finish();
  // After finish(): the file is on the disk, under its name once the caller has synced the folder.
  Result<void> sync();
  Result<void> publish();
  [[nodiscard]] bool published() const noexcept { return published_; }

 private:
  PackWriter(Files& files, Budget& budget, std::string folder, std::uint64_t number, bool over_budget);
  Result<void> write(std::span<const std::byte> bytes);
  Result<void> flush();

  Files& files_;
  Budget& budget_;
  const std::string folder_;
  const std::uint64_t number_;
  const bool over_budget_;
  std::unique_ptr<File> file_;
  std::vector<std::byte> buffer_;
  std::uint64_t end_ = 0;      // with the buffer
  std::uint64_t flushed_ = 0;  // without it
  std::uint64_t taken_ = 0;    // from the budget
  bool published_ = false;
  std::vector<IndexEntry> index_;
};

struct LoadedPack {
  std::uint64_t bytes = 0;
  std::vector<IndexEntry> index;
  std::vector<std::string> damage;  // found on the way; what is intact is in the index all the same
};
// A pack's index, or, if that is damaged, one made of the records that a search finds.
Result<LoadedPack> load_pack(Files& files, const std::string& folder, std::uint64_t number);

// Reads a pack from front to back and calls `visit` with each intact record, `damaged` with what is wrong and
// where. kNotFound and kIo only: damage is not an error here.
using VisitRecord = std::function<Result<void>(const RecordHead& head, std::uint64_t offset,
                                               std::span<const std::byte> record)>;
using VisitDamage = std::function<void(std::uint64_t offset, const std::string& what)>;
Result<void> walk_pack(Files& files, const std::string& folder, std::uint64_t number,
                       const VisitRecord& visit, const VisitDamage& damaged);

}  // namespace ckpt::vault
