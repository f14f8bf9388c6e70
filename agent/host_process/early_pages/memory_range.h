// SPDX-License-Identifier: Apache-2.0
// Whole pages of a process by their addresses, as one range or a set of ranges.
// Threads: plain values of one owner. No function fails.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace ckpt::agent::host {

inline constexpr std::uint64_t kMemoryPage = 4096;

// A range of whole pages [begin, end).
struct MemoryRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  [[nodiscard]] std::uint64_t bytes() const { return end - begin; }
  friend bool operator==(const MemoryRange&, const MemoryRange&) = default;
};

class RangeSet {
 public:
  void add(MemoryRange range);
  void remove(const MemoryRange& range);
  // Returns, by address, the parts of `range` that the set contains. missing() returns the parts that the set
  // lacks.
  [[nodiscard]] std::vector<MemoryRange> common(const MemoryRange& range) const;
  [[nodiscard]] std::vector<MemoryRange> missing(const MemoryRange& range) const;

 private:
  std::map<std::uint64_t, std::uint64_t> ends_;  // end of each range by the range's begin; adjacent ranges
                                                 // are joined
};

}  // namespace ckpt::agent::host
