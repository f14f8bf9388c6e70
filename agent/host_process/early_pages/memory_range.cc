// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/early_pages/memory_range.h"

#include <algorithm>
#include <iterator>

namespace ckpt::agent::host {

void RangeSet::add(MemoryRange range) {
  if (range.end <= range.begin) return;
  auto next = ends_.upper_bound(range.begin);
  if (next != ends_.begin() && std::prev(next)->second >= range.begin) --next;
  while (next != ends_.end() && next->first <= range.end) {
    range.begin = std::min(range.begin, next->first);
    range.end = std::max(range.end, next->second);
    next = ends_.erase(next);
  }
  ends_[range.begin] = range.end;
}

void RangeSet::remove(const MemoryRange& range) {
  for (const MemoryRange& part : common(range)) {
    const auto whole = std::prev(ends_.upper_bound(part.begin));
    const std::uint64_t end = whole->second;
    whole->second = part.begin;
    if (whole->first == part.begin) ends_.erase(whole);
    if (end > part.end) ends_[part.end] = end;
  }
}

std::vector<MemoryRange> RangeSet::common(const MemoryRange& range) const {
  std::vector<MemoryRange> found;
  auto next = ends_.upper_bound(range.begin);
  if (next != ends_.begin()) --next;
  for (; next != ends_.end() && next->first < range.end; ++next) {
    const MemoryRange part{std::max(range.begin, next->first), std::min(range.end, next->second)};
    if (part.begin < part.end) found.push_back(part);
  }
  return found;
}

std::vector<MemoryRange> RangeSet::missing(const MemoryRange& range) const {
  std::vector<MemoryRange> lacking;
  std::uint64_t at = range.begin;
  for (const MemoryRange& part : common(range)) {
    if (at < part.begin) lacking.push_back({at, part.begin});
    at = part.end;
  }
  if (at < range.end) lacking.push_back({at, range.end});
  return lacking;
}

}  // namespace ckpt::agent::host
