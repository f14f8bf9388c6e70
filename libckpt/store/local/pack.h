// SPDX-License-Identifier: Apache-2.0
// Packs: files of records. A pack is written sequentially, gets an index and a tail, is synced and renamed to
// its final name, and never changes again. A file without such a name is a leftover of an interrupted writer
// and is ignored.
//
// Threads: a PackWriter belongs to one thread at a time; the functions are pure except for file access.
// Errors: kRefused if the budget or the disk has no space; kCorrupt for damage.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/store/local/files.h"
#include "libckpt/store/local/format.h"

namespace ckpt::checkpoint_store {

// The number of bytes that a checkpoint store may use. Thread-safe.
class Budget {
 public:
  explicit Budget(std::uint64_t limit_bytes) : limit_(limit_bytes) {}  // creates a budget; 0 means no limit
  Result<void> charge(std::uint64_t bytes);
  void take_anyway(std::uint64_t bytes) noexcept { used_ += bytes; }
  void give_back(std::uint64_t bytes) noexcept { used_ -= bytes; }
  [[nodiscard]] std::uint64_t used() const noexcept { return used_; }
  [[nodiscard]] std::uint64_t limit() const noexcept { return limit_; }

 private:
  const std::uint64_t limit_;
  std::atomic<std::uint64_t> used_{0};
};

[[nodiscard]] std::string pack_name(std::uint64_t number);
[[nodiscard]] std::uint64_t pack_number(const std::string& name);  // returns the number of the pack with this
                                                                   // file name; 0 for any other name

class PackWriter {
 public:
  // Creates a pack. With `over_budget`, a collection may exceed the limit by the pack that it writes, since
  // it frees more.
  static Result<std::unique_ptr<PackWriter>> create(Files& files, Budget& budget, const std::string& folder,
                                                    std::uint64_t number, bool over_budget);
  // Removes the file, as far as possible, if publish() was not called.
  ~PackWriter();
  PackWriter(const PackWriter&) = delete;
  PackWriter& operator=(const PackWriter&) = delete;

  // Appends a record and returns its offset.
  Result<std::uint64_t> append(const RecordHead& head, std::span<const std::byte> payload);
  [[nodiscard]] std::uint64_t bytes() const noexcept { return end_; }
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] const std::vector<IndexEntry>& index() const noexcept { return index_; }
  // Writes index and tail. Nothing is appended after that.
  Result<void> finish();
  // Syncs and renames the file; call both functions after finish(). The file has its final name on the disk
  // once the caller has synced the folder.
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
  std::uint64_t end_ = 0;      // the length of the pack, including the buffer
  std::uint64_t flushed_ = 0;  // the length of the pack, excluding the buffer
  std::uint64_t taken_ = 0;    // the bytes taken from the budget
  bool published_ = false;
  std::vector<IndexEntry> index_;
};

struct LoadedPack {
  std::uint64_t bytes = 0;
  std::vector<IndexEntry> index;
  std::vector<std::string> damage;  // damage found while reading; intact records are in the index anyway
};
// Loads a pack's index. If the index is damaged, it is rebuilt from the records that a search finds.
Result<LoadedPack> load_pack(Files& files, const std::string& folder, std::uint64_t number);

// Reads a pack sequentially. It calls `visit` with each intact record, and `damaged` with each damage and its
// place. Returns kNotFound and kIo only: damage is not an error here.
using VisitRecord = std::function<Result<void>(const RecordHead& head, std::uint64_t offset,
                                               std::span<const std::byte> record)>;
using VisitDamage = std::function<void(std::uint64_t offset, const std::string& what)>;
Result<void> walk_pack(Files& files, const std::string& folder, std::uint64_t number,
                       const VisitRecord& visit, const VisitDamage& damaged);

}  // namespace ckpt::checkpoint_store
