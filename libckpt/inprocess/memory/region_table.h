// SPDX-License-Identifier: Apache-2.0
// The regions of one rank: the place of each physical allocation, under an id that is never reused.
// Threads: no lock inside; the owner locks. Ownership: plain values. Errors: kInvalidArgument for ranges that
// overlap a known one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "libckpt/base/result.h"

namespace ckpt {

struct Region {
  std::uint64_t id = 0;          // the number of the region, counted from 1
  std::uint64_t generation = 0;  // the table's change counter when the region was added, counted from 1
  std::uint64_t pointer = 0;
  std::uint64_t bytes = 0;
};

class RegionTable {
 public:
  Result<Region> add(std::uint64_t pointer, std::uint64_t bytes);
  bool remove(std::uint64_t id);

  // Returns the region that contains all of [pointer, pointer + bytes), or nullptr. The result is valid until
  // the next change.
  [[nodiscard]] const Region* containing(std::uint64_t pointer, std::uint64_t bytes) const;
  [[nodiscard]] const Region* find(std::uint64_t id) const;
  [[nodiscard]] const std::map<std::uint64_t, Region>& by_pointer() const { return by_pointer_; }
  [[nodiscard]] std::size_t size() const { return by_pointer_.size(); }

 private:
  std::map<std::uint64_t, Region> by_pointer_;
  std::map<std::uint64_t, std::uint64_t> pointer_of_id_;
  std::uint64_t next_id_ = 1;
  std::uint64_t generation_ = 0;
};

}  // namespace ckpt
