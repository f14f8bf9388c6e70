// SPDX-License-Identifier: Apache-2.0
// Descriptors of device memory that the keeper holds for its rank: exported or arrived memory.
// Threads: none. Ownership: the descriptors. Errors: kIo when the process may have no more descriptors; the
// set then knows that it is not complete.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"
#include "libckpt/inprocess/local/messages.h"

namespace ckpt::keeper {

class MemoryBank {
 public:
  // Takes duplicates; the descriptors stay the caller's. After an error none of these records is held.
  Result<void> add(std::span<const local::RegionRecord> records, std::span<const UniqueFd> descriptors);
  void drop(std::uint64_t id, std::uint64_t generation);
  void clear();
  // Replaces the memory of regions that are held, by memory of the same sizes. It takes duplicates. All or
  // none: kNotFound, kInvalidArgument.
  Result<void> replace(std::span<const local::RegionRecord> records, std::span<const UniqueFd> descriptors);

  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] std::uint64_t size() const { return entries_.size(); }
  [[nodiscard]] std::uint64_t digest() const;
  // Returns why a descriptor that should be held is not; empty: nothing is missing.
  [[nodiscard]] const std::string& missing() const { return missing_; }

  // Up to kMaxRecords records after `last`, in the order of ids, with duplicates of their descriptors. It is
  // empty at the end.
  struct Batch {
    std::vector<local::RegionRecord> records;
    std::vector<UniqueFd> descriptors;
  };
  Result<Batch> batch_after(std::uint64_t last) const;
  // Returns the ids of the regions, the largest region first.
  [[nodiscard]] std::vector<std::uint64_t> by_size() const;
  // Returns the records of `ids` that are held, in this order: at most `most`, and after the first no more
  // than `bytes` together. `taken`: how many of `ids` were looked up.
  Result<Batch> batch_of(std::span<const std::uint64_t> ids, std::size_t most, std::uint64_t bytes,
                         std::size_t& taken) const;
  [[nodiscard]] std::uint64_t bytes_of(std::uint64_t id) const;

 private:
  struct Entry {
    local::RegionRecord record;
    UniqueFd descriptor;
  };
  std::map<std::uint64_t, Entry> entries_;  // by region id
  std::string missing_;
};

// Raises this process's limit of descriptors as far as it may. Processes that it started before keep their
// own limit.
void raise_descriptor_limit();

}  // namespace ckpt::keeper
