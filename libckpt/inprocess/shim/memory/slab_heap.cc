// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/shim/memory/slab_heap.h"

namespace ckpt::shim {

void SlabHeap::insert(std::uint64_t address, std::uint64_t bytes) {
  by_size_.emplace(bytes, address);
  by_address_.emplace(address, bytes);
}

void SlabHeap::erase(std::uint64_t address, std::uint64_t bytes) {
  by_size_.erase({bytes, address});
  by_address_.erase(address);
}

std::optional<std::uint64_t> SlabHeap::allocate(std::uint64_t bytes) {
  const auto found = by_size_.lower_bound({bytes, 0});
  if (found == by_size_.end()) return std::nullopt;
  const auto [free_bytes, address] = *found;
  erase(address, free_bytes);
  if (free_bytes > bytes) insert(address + bytes, free_bytes - bytes);
  return address;
}

std::optional<std::uint64_t> SlabHeap::give(std::uint64_t address, std::uint64_t bytes) {
  const std::uint64_t slab = slab_of(address);
  const auto next = by_address_.lower_bound(address + bytes);
  if (next != by_address_.end() && next->first == address + bytes && slab_of(next->first) == slab) {
    const auto [next_address, next_bytes] = *next;
    erase(next_address, next_bytes);
    bytes += next_bytes;
  }
  const auto after = by_address_.lower_bound(address);
  if (after != by_address_.begin()) {
    const auto [former, former_bytes] = *std::prev(after);
    if (former + former_bytes == address && slab_of(former) == slab) {
      erase(former, former_bytes);
      address = former;
      bytes += former_bytes;
    }
  }
  insert(address, bytes);
  if (bytes < slab_bytes_) return std::nullopt;
  return slab;
}

}  // namespace ckpt::shim
