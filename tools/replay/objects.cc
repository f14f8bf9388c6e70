// SPDX-License-Identifier: Apache-2.0
#include "tools/replay/objects.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace ckpt::replay {
namespace {

constexpr std::uint64_t kPage = 4096;

}  // namespace

void Objects::Freed::operator()(void* memory) const {
  std::free(memory);
}

Objects::Host Objects::allocate(std::uint64_t bytes) {
  if (bytes > kMaxScratch) return nullptr;
  const std::uint64_t whole = (std::max<std::uint64_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  Host memory(std::aligned_alloc(kPage, whole));
  if (memory) std::memset(memory.get(), 0, whole);
  return memory;
}

std::uint64_t Objects::handle(std::uint64_t traced) const {
  const auto found = handles_.find(traced);
  return found == handles_.end() ? traced : found->second;
}

void Objects::learn_handle(std::uint64_t traced, std::uint64_t own) {
  handles_[traced] = own;
  missing_.erase(traced);
}

std::optional<std::uint64_t> Objects::address(std::uint64_t traced) const {
  const auto after = ranges_.upper_bound(traced);
  if (after == ranges_.begin()) return std::nullopt;
  const auto& [first, range] = *std::prev(after);
  if (traced - first >= range.bytes) return std::nullopt;
  return range.own + (traced - first);
}

void Objects::learn_range(std::uint64_t traced, std::uint64_t own, std::uint64_t bytes) {
  if (bytes == 0 || traced + bytes < traced || address(traced) == own) return;
  auto at = ranges_.lower_bound(traced);
  if (at != ranges_.begin() && std::prev(at)->first + std::prev(at)->second.bytes > traced) --at;
  while (at != ranges_.end() && at->first < traced + bytes) at = ranges_.erase(at);
  ranges_[traced] = Range{bytes, own};
  missing_.erase(traced);
}

void Objects::forget_range(std::uint64_t traced) {
  const auto after = ranges_.upper_bound(traced);
  if (after == ranges_.begin()) return;
  const auto found = std::prev(after);
  if (traced - found->first < found->second.bytes) ranges_.erase(found);
}

void Objects::miss(std::uint64_t traced) {
  missing_.insert(traced);
}

bool Objects::is_missing(std::uint64_t traced) const {
  return missing_.count(traced) != 0;
}

void* Objects::make_host_range(std::uint64_t traced, std::uint64_t bytes) {
  Host memory = allocate(bytes);
  if (!memory) return nullptr;
  hosts_.push_back(std::move(memory));
  learn_range(traced, reinterpret_cast<std::uint64_t>(hosts_.back().get()), bytes);
  return hosts_.back().get();
}

void* Objects::scratch(std::uint64_t bytes) {
  if (bytes <= scratch_bytes_ && scratch_) return scratch_.get();
  if (bytes > kMaxScratch) return nullptr;
  const std::uint64_t wanted = std::min(std::max(bytes, 2 * scratch_bytes_), kMaxScratch);
  Host larger = allocate(wanted);
  if (!larger) return nullptr;
  if (scratch_) smaller_scratches_.push_back(std::move(scratch_));
  scratch_ = std::move(larger);
  scratch_bytes_ = wanted;
  return scratch_.get();
}

}  // namespace ckpt::replay
