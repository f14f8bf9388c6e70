// SPDX-License-Identifier: Apache-2.0
// Free address ranges with first-fit allocation. Returned ranges are joined with their neighbors.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

namespace cudasim {

class Ranges {
 public:
  Ranges(std::uint64_t begin, std::uint64_t bytes) { free_[begin] = bytes; }

  // Claims `bytes` bytes aligned to `alignment` (a power of two). Returns 0 if no range is free.
  std::uint64_t take(std::uint64_t bytes, std::uint64_t alignment) {
    for (const auto& [begin, size] : free_) {
      const std::uint64_t at = (begin + alignment - 1) & ~(alignment - 1);
      if (at - begin <= size && size - (at - begin) >= bytes) {
        take_at(at, bytes);
        return at;
      }
    }
    return 0;
  }

  // Claims exactly these addresses. Returns false if some of them are not free.
  bool take_at(std::uint64_t at, std::uint64_t bytes) {
    auto found = free_.upper_bound(at);
    if (found == free_.begin()) return false;
    found = std::prev(found);
    const std::uint64_t begin = found->first;
    const std::uint64_t size = found->second;
    if (at - begin > size || size - (at - begin) < bytes) return false;
    free_.erase(found);
    if (at > begin) free_[begin] = at - begin;
    if (at + bytes < begin + size) free_[at + bytes] = begin + size - at - bytes;
    return true;
  }

  void give(std::uint64_t at, std::uint64_t bytes) {
    auto next = free_.lower_bound(at);
    if (next != free_.end() && next->first == at + bytes) {
      bytes += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == at) {
        before->second += bytes;
        return;
      }
    }
    free_[at] = bytes;
  }

 private:
  std::map<std::uint64_t, std::uint64_t> free_;
};

}  // namespace cudasim
