// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/local/diff.h"

#include <algorithm>

namespace ckpt::checkpoint_store {
namespace {

// Calls `changed` with each chunk of `to` that differs from its chunk in `from`, a list of the same length.
template <class Changed>
Result<void> compare_lists(JobStore& store, const ChunkList& from, const ChunkList& to, Changed&& changed) {
  CKPT_TRY(coder, store.coders().borrow(kBlobChunkBytes));
  for (std::uint64_t block = 0; block < to.block_count(); ++block) {
    if (from.block(block) == to.block(block)) continue;
    CKPT_TRY(old_ids, store.read_list(*coder, from, block));
    CKPT_TRY(new_ids, store.read_list(*coder, to, block));
    for (std::size_t i = 0; i < new_ids.size(); ++i)
      if (old_ids[i] != new_ids[i]) changed(block * kListChunks + i);
  }
  return ok();
}

bool same_shape(const ChunkList& a, const ChunkList& b) {
  return a.bytes == b.bytes && a.chunk_bytes == b.chunk_bytes;
}

const Region* find(const Version& version, const Region& like) {
  for (const Region& region : version.regions)
    if (region.rank == like.rank && region.id == like.id) return &region;
  return nullptr;
}

const Blob* find(const Version& version, const Blob& like) {
  for (const Blob& blob : version.blobs)
    if (blob.name == like.name) return &blob;
  return nullptr;
}

RegionDiff diff_of(const Region& region, Change change) {
  RegionDiff diff;
  diff.rank = region.rank;
  diff.id = region.id;
  diff.name = region.name;
  diff.change = change;
  diff.bytes = region.list.bytes;
  return diff;
}

void add_chunk(RegionDiff& diff, const ChunkList& list, std::uint64_t chunk) {
  diff.changed_chunks++;
  diff.changed_bytes += list.bytes_of_chunk(chunk);
  if (!diff.ranges.empty() && diff.ranges.back().first + diff.ranges.back().count == chunk) {
    diff.ranges.back().count++;
  } else {
    diff.ranges.push_back({chunk, 1});
  }
}

Result<RegionDiff> diff_region(JobStore& store, const Region* from, const Region& to) {
  RegionDiff diff = diff_of(to, from == nullptr ? Change::kAdded : Change::kSame);
  if (from == nullptr || !same_shape(from->list, to.list)) {
    diff.changed_chunks = to.list.chunk_count();
    diff.changed_bytes = to.list.bytes;
    diff.ranges.push_back({0, diff.changed_chunks});
    if (from != nullptr) diff.change = Change::kChanged;
    return diff;
  }
  CKPT_TRYV(compare_lists(store, from->list, to.list,
                          [&](std::uint64_t chunk) { add_chunk(diff, to.list, chunk); }));
  if (diff.changed_chunks != 0) diff.change = Change::kChanged;
  return diff;
}

Result<BlobDiff> diff_blob(JobStore& store, const Blob* from, const Blob& to) {
  BlobDiff diff{to.name, from == nullptr ? Change::kAdded : Change::kSame, to.list.bytes, 0};
  if (from == nullptr || !same_shape(from->list, to.list)) {
    diff.changed_bytes = to.list.bytes;
    if (from != nullptr) diff.change = Change::kChanged;
    return diff;
  }
  CKPT_TRYV(compare_lists(store, from->list, to.list, [&](std::uint64_t chunk) {
    diff.changed_bytes += to.list.bytes_of_chunk(chunk);
    diff.change = Change::kChanged;
  }));
  return diff;
}

}  // namespace

std::string_view to_string(Change change) noexcept {
  switch (change) {
    case Change::kSame:
      return "same";
    case Change::kChanged:
      return "changed";
    case Change::kAdded:
      return "added";
    case Change::kRemoved:
      return "removed";
  }
  return "";
}

std::uint64_t VersionDiff::changed_bytes() const {
  std::uint64_t bytes = 0;
  for (const RegionDiff& region : regions) bytes += region.changed_bytes;
  for (const BlobDiff& blob : blobs) bytes += blob.changed_bytes;
  return bytes;
}

Result<VersionDiff> diff(JobStore& store, const Version& from, const Version& to) {
  VersionDiff all;
  for (const Region& region : to.regions) {
    CKPT_TRY(one, diff_region(store, find(from, region), region));
    all.regions.push_back(std::move(one));
  }
  for (const Region& region : from.regions)
    if (find(to, region) == nullptr) all.regions.push_back(diff_of(region, Change::kRemoved));
  for (const Blob& blob : to.blobs) {
    CKPT_TRY(one, diff_blob(store, find(from, blob), blob));
    all.blobs.push_back(std::move(one));
  }
  for (const Blob& blob : from.blobs)
    if (find(to, blob) == nullptr) all.blobs.push_back({blob.name, Change::kRemoved, blob.list.bytes, 0});
  return all;
}

}  // namespace ckpt::checkpoint_store
