// SPDX-License-Identifier: Apache-2.0
// The position of the newest copy of each page of a process in the memory log.
// Threads: a plain value of one owner. No function fails.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "agent/host_process/criu_image/memory_index.h"
#include "agent/host_process/early_pages/memory_range.h"

namespace ckpt::agent::host {

class PageIndex {
 public:
  void put(const MemoryRange& range, std::uint64_t offset);
  void forget(const MemoryRange& range);
  // Removes all pages outside `ranges`, which are ascending.
  void retain_only(const std::vector<MemoryRange>& ranges);
  // Returns the parts of `ranges` that the index lacks.
  [[nodiscard]] std::vector<MemoryRange> missing(const std::vector<MemoryRange>& ranges) const;
  [[nodiscard]] std::vector<IndexedRange> ranges() const;
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  struct Place {
    std::uint64_t end;
    std::uint64_t offset;
  };
  void insert(const MemoryRange& range, std::uint64_t offset);

  std::map<std::uint64_t, Place> places_;  // end of each range and its offset in the log, by the range's
                                           // first address
  std::uint64_t bytes_ = 0;
};

}  // namespace ckpt::agent::host
