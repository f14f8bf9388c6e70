// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/local/scrub.h"

#include <algorithm>
#include <optional>
#include <set>

namespace ckpt::checkpoint_store {
namespace {

class Scrubbing {
 public:
  explicit Scrubbing(JobStore& store) : store_(store) {}

  Result<ScrubReport> run() {
    for (const std::string& what : store_.damage()) report_.findings.push_back({"job " + store_.job(), what});
    // Versions are read before packs: a version's content existed before the version, and a collection does
    // not remove it.
    const auto versions = store_.versions();
    for (const auto& [number, bytes] : store_.pack_sizes()) {
      CKPT_TRYV(verify_pack(number));
    }
    for (const DamagedVersion& damaged : store_.damaged_versions()) {
      report_.findings.push_back({"version " + std::to_string(damaged.number), damaged.error.to_string()});
      report_.versions.push_back({damaged.number, false, 0, damaged.error.to_string()});
    }
    CKPT_TRYV(fit_coder(kBlobChunkBytes));
    for (const auto& version : versions) {
      CKPT_TRYV(verify_version(**coder_, *version));
    }
    std::sort(report_.versions.begin(), report_.versions.end(),
              [](const VersionHealth& a, const VersionHealth& b) { return a.number < b.number; });
    return std::move(report_);
  }

 private:
  Result<void> verify_pack(std::uint64_t number) {
    const std::string name = "pack " + pack_name(number);
    const auto damaged = [&](std::uint64_t offset, const std::string& what) {
      report_.findings.push_back({name + " at byte " + std::to_string(offset), what});
    };
    const auto visit = [&](const RecordHead& head, std::uint64_t offset,
                           std::span<const std::byte> record) -> Result<void> {
      report_.records++;
      report_.bytes += record.size();
      plain_.resize(head.plain_bytes);
      CKPT_TRYV(fit_coder(head.plain_bytes));
      auto opened = (*coder_)->open(head, record, plain_);
      if (opened) {
        intact_.push_back({number, offset, head.stored_bytes});
        return ok();
      }
      if (opened.error().code() != ErrorCode::kCorrupt) return opened;
      damaged(offset, opened.error().message());
      return ok();
    };
    walked_.insert(number);
    auto walked = walk_pack(store_.files(), store_.pack_folder(), number, visit, damaged);
    if (walked) {
      report_.packs++;
      return ok();
    }
    if (walked.error().code() == ErrorCode::kNotFound && !store_.pack_sizes().contains(number)) return ok();
    if (walked.error().code() != ErrorCode::kNotFound) return walked;
    damaged(0, "The file is missing");
    return ok();
  }

  bool is_intact(const ContentId& id, RecordKind kind) {
    for (const Place& place : store_.places(id, kind))
      if (!walked_.contains(place.pack) || std::binary_search(intact_.begin(), intact_.end(), place))
        return true;
    store_.note_damaged(id);
    return false;
  }

  Result<void> verify_version(RecordCoder& coder, const Version& version) {
    VersionHealth health{version.number, true, 0, {}};
    for (const Region& region : version.regions) {
      CKPT_TRYV(verify_list(coder, region.list,
                            "region " + std::to_string(region.id) + " of rank " + std::to_string(region.rank),
                            health));
    }
    for (const Blob& blob : version.blobs) {
      CKPT_TRYV(verify_list(coder, blob.list, "blob " + blob.name, health));
    }
    if (!health.restorable)
      report_.findings.push_back(
          {"version " + std::to_string(version.number),
           std::to_string(health.damaged_chunks) + " chunks damaged: " + health.first});
    report_.versions.push_back(std::move(health));
    return ok();
  }

  Result<void> verify_list(RecordCoder& coder, const ChunkList& list, const std::string& name,
                           VersionHealth& health) {
    const auto lost = [&](std::uint64_t chunk, std::uint64_t count) {
      if (health.restorable) health.first = "chunk " + std::to_string(chunk) + " of " + name;
      health.restorable = false;
      health.damaged_chunks += count;
    };
    for (std::uint64_t block = 0; block < list.block_count(); ++block) {
      auto ids = store_.read_list(coder, list, block);
      if (!ids) {
        if (ids.error().code() != ErrorCode::kCorrupt) return std::move(ids).error();
        lost(block * kListChunks, list.chunks_of_block(block));
        continue;
      }
      for (std::size_t i = 0; i < ids->size(); ++i) {
        const ContentId& id = (*ids)[i];
        if (!id.is_zero() && !is_intact(id, RecordKind::kChunk)) lost(block * kListChunks + i, 1);
      }
    }
    return ok();
  }

  // Replaces the coder if needed, because chunks of a version may be larger than all earlier ones.
  Result<void> fit_coder(std::uint64_t max_bytes) {
    if (coder_ && (*coder_)->max_bytes() >= max_bytes) return ok();
    coder_.reset();
    CKPT_TRY(coder, store_.coders().borrow(max_bytes));
    coder_.emplace(std::move(coder));
    return ok();
  }

  JobStore& store_;
  ScrubReport report_;
  std::optional<RecordCoders::Loan> coder_;
  std::vector<Place> intact_;  // the intact places, in the order of the packs
  std::set<std::uint64_t> walked_;
  std::vector<std::byte> plain_;
};

}  // namespace

Result<ScrubReport> scrub(JobStore& store) {
  return Scrubbing(store).run();
}

}  // namespace ckpt::checkpoint_store
