// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/memory/memory_sets.h"

#include <span>
#include <utility>

namespace ckpt::keeper {
namespace {

using local::MemorySet;

// The limit for regions in one fetch. A mover gets two descriptors for each region, and a message has at most
// kMaxDescriptors.
constexpr std::size_t kMaxFetched = local::kMaxDescriptors / 2;

}  // namespace

const MemoryBank* MemorySets::find(MemorySet set, std::uint64_t migration) const {
  if (set == MemorySet::kExported) return &exported_;
  const bool is_there = set == MemorySet::kArrived && migration == arrived_migration_ && !arrived_.empty();
  return is_there ? &arrived_ : nullptr;
}

Result<void> MemorySets::deposit(const local::Received& received) {
  const auto& deposit = std::get<local::Deposit>(received.message.body);
  if (deposit.migration != arrived_migration_) arrived_.clear();
  arrived_migration_ = deposit.migration;
  return arrived_.add(deposit.records, received.descriptors);
}

void MemorySets::withdraw(std::uint64_t migration) {
  if (migration == arrived_migration_) arrived_.clear();
}

void MemorySets::withdraw_regions(const local::WithdrawRegions& gone) {
  if (gone.migration != arrived_migration_) return;
  for (const local::RegionKey& region : gone.records) arrived_.drop(region.id, region.generation);
}

Result<void> MemorySets::replace(const local::Received& received) {
  const auto& replace = std::get<local::Replace>(received.message.body);
  const bool in_exported = replace.migration == 0;
  if (!in_exported && find(MemorySet::kArrived, replace.migration) == nullptr)
    return Error(ErrorCode::kRefused, "No memory of this migration has arrived");
  return (in_exported ? exported_ : arrived_).replace(replace.records, received.descriptors);
}

Result<MemorySets::Part> MemorySets::fetch(const local::Fetch& fetch) {
  const MemoryBank* set = find(fetch.set, fetch.migration);
  if (set == nullptr) return Error(ErrorCode::kRefused, "The keeper does not hold the requested memory set");
  if (fetch.from == 0 || fetch_order_.empty()) fetch_order_ = set->by_size();
  if (fetch.from >= fetch_order_.size()) {
    fetch_order_.clear();
    return Part{};
  }
  std::size_t used = 0;
  const auto rest = std::span(fetch_order_).subspan(fetch.from);
  CKPT_TRY(batch, set->batch_of(rest, kMaxFetched, set->bytes_of(fetch_order_.front()), used));
  return Part{local::Held{fetch.from + used, std::move(batch.records)}, std::move(batch.descriptors)};
}

void MemorySets::clear() {
  exported_.clear();
  arrived_.clear();
}

}  // namespace ckpt::keeper
