// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/track/sent_map.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "libckpt/base/check.h"
#include "libckpt/datapath/track/fingerprint_walk.h"

namespace ckpt::track {
namespace {

constexpr std::size_t kBlockEntries = kBlockBytes / sizeof(Fingerprint);

constexpr std::size_t blocks_of(std::size_t items, std::size_t of_a_block) {
  return (items + of_a_block - 1) / of_a_block;
}

BlockFunction pick_block() noexcept {
  return __builtin_cpu_supports("avx2") ? &nh_block_avx2 : &nh_block_scalar;
}

}  // namespace

SentMap::SentMap(std::shared_ptr<const FingerprintParams> root_params, std::uint64_t chunk_bytes)
    : root_params_(std::move(root_params)), chunk_bytes_(chunk_bytes) {}

Result<void> SentMap::add_region(std::uint64_t region, std::uint64_t generation, std::uint64_t bytes) {
  const std::uint64_t chunks = bytes / chunk_bytes_ + (bytes % chunk_bytes_ != 0);
  if (bytes == 0 || chunks > UINT32_MAX)
    return Error(ErrorCode::kInvalidArgument,
                 "Region " + std::to_string(region) + " cannot have " + std::to_string(bytes) + " bytes");
  const auto present = regions_.find(region);
  if (present != regions_.end()) {
    if (present->second.generation >= generation)
      return Error(ErrorCode::kInvalidArgument, "Region " + std::to_string(region) +
                                                    " exists already in generation " +
                                                    std::to_string(present->second.generation));
    drop_region(region, present->second.generation);
  }
  Region entry;
  entry.generation = generation;
  entry.bytes = bytes;
  entry.fingerprints.resize(chunks);
  entry.known.resize(chunks, false);
  entry.blocks.resize(blocks_of(chunks, kBlockEntries));
  regions_.emplace(region, std::move(entry));
  missing_ += chunks;
  chunk_count_ += chunks;
  return ok();
}

bool SentMap::drop_region(std::uint64_t region, std::uint64_t generation) {
  const auto found = regions_.find(region);
  if (found == regions_.end() || found->second.generation != generation) return false;
  const std::vector<bool>& known = found->second.known;
  const auto unknown = static_cast<std::uint64_t>(std::count(known.begin(), known.end(), false));
  CKPT_CHECK(unknown <= missing_ && known.size() <= chunk_count_,
             "ENG-1: a region's chunks are among those that are counted");
  missing_ -= unknown;
  chunk_count_ -= known.size();
  regions_.erase(found);
  return true;
}

Result<const SentMap::Region*> SentMap::find_region(std::uint64_t region, std::uint64_t generation) const {
  const auto found = regions_.find(region);
  if (found == regions_.end() || found->second.generation != generation)
    return Error(ErrorCode::kNotFound, "There is no region " + std::to_string(region) + " in generation " +
                                           std::to_string(generation));
  return &found->second;
}

Result<SentMap::Region*> SentMap::find_chunk(std::uint64_t region, std::uint64_t generation,
                                             std::uint32_t chunk) {
  CKPT_TRY(found, find_region(region, generation));
  if (chunk >= found->known.size())
    return Error(ErrorCode::kInvalidArgument,
                 "Region " + std::to_string(region) + " has no chunk " + std::to_string(chunk));
  return const_cast<Region*>(found);
}

Result<void> SentMap::acknowledge(std::uint64_t region, std::uint64_t generation, std::uint32_t chunk,
                                  const Fingerprint& from_target) {
  CKPT_TRY(entry, find_chunk(region, generation, chunk));
  if (!entry->known[chunk]) --missing_;
  entry->known[chunk] = true;
  if (entry->fingerprints[chunk] != from_target) entry->blocks[chunk / kBlockEntries].stale = true;
  entry->fingerprints[chunk] = from_target;
  return ok();
}

Result<void> SentMap::forget(std::uint64_t region, std::uint64_t generation, std::uint32_t chunk) {
  CKPT_TRY(entry, find_chunk(region, generation, chunk));
  if (entry->known[chunk]) ++missing_;
  entry->known[chunk] = false;
  return ok();
}

Result<void> SentMap::diff(std::uint64_t region, std::uint64_t generation,
                           std::span<const Fingerprint> scanned, std::uint32_t first_chunk,
                           std::vector<std::uint32_t>& dirty) const {
  CKPT_TRY(entry, find_region(region, generation));
  if (first_chunk > entry->known.size() || scanned.size() > entry->known.size() - first_chunk)
    return Error(ErrorCode::kInvalidArgument, "A scan of region " + std::to_string(region) + " has " +
                                                  std::to_string(first_chunk + scanned.size()) +
                                                  " chunks, but the region has " +
                                                  std::to_string(entry->known.size()));
  for (std::uint32_t i = 0; i < scanned.size(); ++i) {
    const std::uint32_t chunk = first_chunk + i;
    if (!entry->known[chunk] || entry->fingerprints[chunk] != scanned[i]) dirty.push_back(chunk);
  }
  return ok();
}

std::optional<Fingerprint> SentMap::find(std::uint64_t region, std::uint64_t generation,
                                         std::uint32_t chunk) const {
  const auto found = find_region(region, generation);
  if (!found.has_value() || chunk >= (*found)->known.size()) return std::nullopt;
  const Region& entry = **found;
  if (!entry.known[chunk]) return std::nullopt;
  return entry.fingerprints[chunk];
}

Result<Fingerprint> SentMap::root() const {
  if (missing_ > 0)
    return Error(ErrorCode::kRefused, std::to_string(missing_) +
                                          " chunks have not been acknowledged, so the table has no root yet");
  std::uint64_t entries = 0;
  for (const auto& [id, region] : regions_) entries += region.fingerprints.size();
  CKPT_CHECK(entries == chunk_count_, "ENG-4: the root covers every chunk");
  std::vector<std::uint64_t> head = {chunk_bytes_, regions_.size()};
  for (const auto& [id, region] : regions_) head.insert(head.end(), {id, region.generation, region.bytes});
  const FingerprintTables& tables = root_params_->tables();
  Chain chain;
  std::uint64_t blocks = 0;
  const auto add = [&](const BlockHash& block) {
    chain.add(tables, block.z[0], block.z[1]);
    ++blocks;
  };
  std::span<const std::byte> rest = std::as_bytes(std::span(head));
  while (!rest.empty()) {
    const std::size_t bytes = std::min<std::size_t>(rest.size(), kBlockBytes);
    add(hash(rest.first(bytes)));
    rest = rest.subspan(bytes);
  }
  for (const auto& [id, region] : regions_) {
    refresh(region);
    for (const BlockHash& block : region.blocks) add(block);
  }
  return chain.finish(tables, blocks * kBlockBytes);
}

void SentMap::refresh_root() const {
  for (const auto& [id, region] : regions_) refresh(region);
}

void SentMap::refresh(const Region& region) const {
  const std::span<const Fingerprint> all = region.fingerprints;
  CKPT_CHECK(region.blocks.size() == blocks_of(all.size(), kBlockEntries),
             "ENG-4: the root's blocks hold every chunk of a region");
  for (std::size_t i = 0; i < region.blocks.size(); ++i) {
    if (!region.blocks[i].stale) continue;
    const std::size_t first = i * kBlockEntries;
    region.blocks[i] = hash(std::as_bytes(all.subspan(first, std::min(kBlockEntries, all.size() - first))));
  }
}

SentMap::BlockHash SentMap::hash(std::span<const std::byte> up_to_a_block) const {
  static const BlockFunction nh = pick_block();
  alignas(64) std::array<unsigned char, kBlockBytes> block{};
  std::memcpy(block.data(), up_to_a_block.data(), up_to_a_block.size());
  const FingerprintTables& tables = root_params_->tables();
  const BlockSums sums = nh(tables, block.data());
  return {{compress(tables, 0, sums), compress(tables, 1, sums)}, false};
}

}  // namespace ckpt::track
