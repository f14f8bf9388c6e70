// SPDX-License-Identifier: Apache-2.0
// The place of the newest copy of each page of a process in the memory log.
// Threads: a value of one owner. No function fails.
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
  // Forgets all that lies outside of `ranges`, which are ascending.
  void keep_only(const std::vector<MemoryRange>& ranges);
  // The parts of `ranges` that the index lacks.
  [[nodiscard]] std::vector<MemoryRange> missing(const std::vector<MemoryRange>& ranges) const;
  [[nodiscard]] std::vector<IndexedRange> ranges() const;
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  struct Place {
    std::uint64_t end;
    std::uint64_t offset;
  };
  void insert(const MemoryRange& range, std::uint64_t offset);

  std::map<std::uint64_t, Place> places_;  // by their first address
  std::uint64_t bytes_ = 0;
};

}  // namespace ckpt::agent::host
