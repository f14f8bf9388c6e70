// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/lazy_pages/missing_memory.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace ckpt::lazy_pages {

// Splits a range that contains `address` into two ranges.
void MissingMemory::cut(std::uint64_t address) {
  auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return;
  const auto [begin, range] = *std::prev(after);
  if (begin == address || range.end <= address) return;
  std::prev(after)->second.end = address;
  ranges_[address] = {range.end, range.from + (address - begin)};
}

void MissingMemory::drop(std::uint64_t address, std::uint64_t bytes) {
  cut(address);
  cut(address + bytes);
  ranges_.erase(ranges_.lower_bound(address), ranges_.lower_bound(address + bytes));
}

void MissingMemory::add(const Piece& piece) {
  drop(piece.address, piece.bytes);
  ranges_[piece.address] = {piece.address + piece.bytes, piece.from};
}

void MissingMemory::move(std::uint64_t from, std::uint64_t to, std::uint64_t bytes) {
  cut(from);
  cut(from + bytes);
  std::vector<Piece> moved;
  for (auto at = ranges_.lower_bound(from); at != ranges_.lower_bound(from + bytes); ++at)
    moved.push_back({at->first - from + to, at->second.end - at->first, at->second.from});
  drop(from, bytes);
  drop(to, bytes);
  for (const Piece& piece : moved) add(piece);
}

std::optional<MissingMemory::Piece> MissingMemory::at(std::uint64_t address, std::uint64_t limit) const {
  const auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return std::nullopt;
  const auto& [begin, range] = *std::prev(after);
  if (range.end <= address) return std::nullopt;
  return Piece{address, std::min(range.end - address, limit), range.from + (address - begin)};
}

MissingMemory::Piece MissingMemory::next(std::uint64_t address, std::uint64_t limit) const {
  if (const auto inside = at(address, limit)) return *inside;
  auto first = ranges_.lower_bound(address);
  if (first == ranges_.end()) first = ranges_.begin();
  return {first->first, std::min(first->second.end - first->first, limit), first->second.from};
}

}  // namespace ckpt::lazy_pages
