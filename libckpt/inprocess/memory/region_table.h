// SPDX-License-Identifier: Apache-2.0
// The regions of one rank: which physical allocation lies where, under an id that is never used again.
// Threads: none inside; the owner locks. Ownership: plain values. Errors: kInvalidArgument for ranges that
// overlap a known one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "libckpt/base/result.h"

namespace ckpt {

struct Region {
  std::uint64_t id = 0;          // from 1
  std::uint64_t generation = 0;  // the table's change counter when the region was added, from 1
  std::uint64_t pointer = 0;
  std::uint64_t bytes = 0;
};

class RegionTable {
 public:
  Result<Region> add(std::uint64_t pointer, std::uint64_t bytes);
  bool remove(std::uint64_t id);

  // The region that holds all of [pointer, pointer + bytes), or nullptr. Valid until the next change.
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
