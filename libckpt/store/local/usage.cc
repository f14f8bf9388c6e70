// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/local/usage.h"

#include <set>

namespace ckpt::checkpoint_store {
namespace {

// The stored bytes of one list record and its chunks, by pack. Versions share most of these blocks.
struct BlockUse {
  bool whole = true;
  std::map<std::uint64_t, std::uint64_t> packs;
};

class Counting {
 public:
  explicit Counting(JobStore& store) : store_(store) {}

  Result<VersionUse> count(const Version& version) {
    VersionUse use;
    use.number = version.number;
    for (const Region& region : version.regions) {
      CKPT_TRYV(add(region.list, use));
    }
    for (const Blob& blob : version.blobs) {
      CKPT_TRYV(add(blob.list, use));
    }
    return use;
  }

 private:
  Result<void> add(const ChunkList& list, VersionUse& use) {
    for (std::uint64_t i = 0; i < list.block_count(); ++i) {
      const ContentId id = list.block(i);
      auto known = blocks_.find(id);
      if (known == blocks_.end()) {
        CKPT_TRY(block, look(list, i));
        known = blocks_.emplace(id, std::move(block)).first;
      }
      use.whole = use.whole && known->second.whole;
      for (const auto& [pack, bytes] : known->second.packs) use.packs[pack] += bytes;
    }
    return ok();
  }

  Result<BlockUse> look(const ChunkList& list, std::uint64_t index) {
    BlockUse block;
    count_record(list.block(index), RecordKind::kList, block);
    CKPT_TRY(coder, store_.coders().borrow(list.chunk_bytes));
    auto ids = store_.read_list(*coder, list, index);
    const ErrorCode code = ids ? ErrorCode::kInternal : ids.error().code();
    if (!ids && code != ErrorCode::kCorrupt && code != ErrorCode::kNotFound) return std::move(ids).error();
    if (!ids) {
      block.whole = false;
      return block;
    }
    const std::set<ContentId> different(ids->begin(), ids->end());
    for (const ContentId& id : different)
      if (!id.is_zero()) count_record(id, RecordKind::kChunk, block);
    return block;
  }

  void count_record(const ContentId& id, RecordKind kind, BlockUse& block) {
    const auto places = store_.places(id, kind);
    if (places.empty()) {
      block.whole = false;
    } else {
      block.packs[places.front().pack] += record_bytes(places.front().stored_bytes);
    }
  }

  JobStore& store_;
  std::map<ContentId, BlockUse> blocks_;
};

}  // namespace

Result<std::vector<VersionUse>> uses_of(JobStore& store) {
  Counting counting(store);
  std::vector<VersionUse> all;
  for (const auto& version : store.versions()) {
    CKPT_TRY(use, counting.count(*version));
    all.push_back(std::move(use));
  }
  return all;
}

}  // namespace ckpt::checkpoint_store
