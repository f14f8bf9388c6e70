// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/early_pages/page_index.h"

#include <iterator>

namespace ckpt::agent::host {

void PageIndex::insert(const MemoryRange& range, std::uint64_t offset) {
  if (range.bytes() == 0) return;
  places_[range.begin] = {range.end, offset};
  bytes_ += range.bytes();
}

void PageIndex::put(const MemoryRange& range, std::uint64_t offset) {
  forget(range);
  insert(range, offset);
}

void PageIndex::forget(const MemoryRange& range) {
  auto place = places_.upper_bound(range.begin);
  if (place != places_.begin() && std::prev(place)->second.end > range.begin) --place;
  while (place != places_.end() && place->first < range.end) {
    const std::uint64_t begin = place->first;
    const Place old = place->second;
    place = places_.erase(place);
    bytes_ -= old.end - begin;
    if (begin < range.begin) insert({begin, range.begin}, old.offset);
    if (old.end > range.end) insert({range.end, old.end}, old.offset + (range.end - begin));
  }
}

void PageIndex::retain_only(const std::vector<MemoryRange>& ranges) {
  std::uint64_t kept_to = 0;
  for (const MemoryRange& range : ranges) {
    forget({kept_to, range.begin});
    kept_to = range.end;
  }
  forget({kept_to, ~std::uint64_t{0}});
}

std::vector<MemoryRange> PageIndex::missing(const std::vector<MemoryRange>& ranges) const {
  std::vector<MemoryRange> lacking;
  for (const MemoryRange& range : ranges) {
    std::uint64_t at = range.begin;
    auto place = places_.upper_bound(at);
    if (place != places_.begin() && std::prev(place)->second.end > at) --place;
    for (; at < range.end && place != places_.end() && place->first < range.end; ++place) {
      if (place->first > at) lacking.push_back({at, place->first});
      at = place->second.end;
    }
    if (at < range.end) lacking.push_back({at, range.end});
  }
  return lacking;
}

std::vector<IndexedRange> PageIndex::ranges() const {
  std::vector<IndexedRange> found;
  found.reserve(places_.size());
  for (const auto& [begin, place] : places_) {
    IndexedRange* last = found.empty() ? nullptr : &found.back();
    if (last != nullptr && last->address + last->bytes == begin &&
        last->offset + last->bytes == place.offset) {
      last->bytes += place.end - begin;
    } else {
      found.push_back({begin, place.end - begin, place.offset});
    }
  }
  return found;
}

}  // namespace ckpt::agent::host
