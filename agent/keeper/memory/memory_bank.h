// SPDX-License-Identifier: Apache-2.0
// Descriptors of device memory that the keeper holds for its rank: exported or arrived memory.
// Threads: none. Ownership: the descriptors. Errors: kIo when the process may have no more descriptors. The
// set is then marked as incomplete.
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
  // Adds duplicates of the descriptors, which stay the caller's. After an error the bank contains none of
  // these records.
  Result<void> add(std::span<const local::RegionRecord> records, std::span<const UniqueFd> descriptors);
  void drop(std::uint64_t id, std::uint64_t generation);
  void clear();
  // Replaces the memory of regions in the bank with memory of the same sizes. The function duplicates the
  // descriptors. Either all regions are replaced or none. Errors: kNotFound, kInvalidArgument.
  Result<void> replace(std::span<const local::RegionRecord> records, std::span<const UniqueFd> descriptors);

  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] std::uint64_t size() const { return entries_.size(); }
  [[nodiscard]] std::uint64_t digest() const;
  // Returns the reason why the bank lacks a descriptor that it should have. An empty string means that no
  // descriptor is missing.
  [[nodiscard]] const std::string& missing() const { return missing_; }

  // Up to kMaxRecords records after `last`, in the order of ids, with duplicates of their descriptors. The
  // batch is empty after the last record.
  struct Batch {
    std::vector<local::RegionRecord> records;
    std::vector<UniqueFd> descriptors;
  };
  Result<Batch> batch_after(std::uint64_t last) const;
  // Returns the ids of the regions, with the largest region first.
  [[nodiscard]] std::vector<std::uint64_t> by_size() const;
  // Returns the records of `ids` that the bank contains, in the order of `ids`. The result has at most `max_records`
  // records. Unless it is a single record, it has at most `bytes` bytes. `used` is the number of `ids` that
  // were looked up.
  Result<Batch> batch_of(std::span<const std::uint64_t> ids, std::size_t max_records, std::uint64_t bytes,
                         std::size_t& used) const;
  [[nodiscard]] std::uint64_t bytes_of(std::uint64_t id) const;

 private:
  struct Entry {
    local::RegionRecord record;
    UniqueFd descriptor;
  };
  std::map<std::uint64_t, Entry> entries_;  // entries by region id
  std::string missing_;
};

// Raises this process's limit of descriptors as far as permitted. Processes that it started before keep their
// own limit.
void raise_descriptor_limit();

}  // namespace ckpt::keeper
