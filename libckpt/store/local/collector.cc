// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/local/collector.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace ckpt::checkpoint_store {
namespace {

struct PackUse {
  std::uint64_t bytes = 0;
  std::uint64_t live = 0;
  std::uint64_t records = 0;
  [[nodiscard]] std::uint64_t dead() const { return bytes - std::min(live, bytes); }
};

class Collection {
 public:
  Collection(JobStore& store, const CollectOptions& options) : store_(store), options_(options) {}

  Result<CollectReport> run() {
    // A version that this build does not understand may use any chunk.
    for (const DamagedVersion& version : store_.damaged_versions())
      if (version.error.code() != ErrorCode::kCorrupt) return version.error;
    CKPT_TRYV(mark());
    count();
    CKPT_TRYV(remove_dead());
    const auto chosen = choose();
    CKPT_TRYV(rewrite(chosen));
    for (const auto& [number, use] : use_) {
      report_.live_bytes += use.live;
      report_.dead_bytes += use.dead();
    }
    return report_;
  }

 private:
  Result<void> mark() {
    store_.with_index([](ChunkIndex& index) { index.clear_marks(); });
    CKPT_TRY(coder, store_.coders().borrow(kBlobChunkBytes));
    std::set<ContentId> seen;
    for (const auto& version : store_.live_versions()) {
      for (const Region& region : version->regions) {
        CKPT_TRYV(mark_list(*coder, region.list, seen));
      }
      for (const Blob& blob : version->blobs) {
        CKPT_TRYV(mark_list(*coder, blob.list, seen));
      }
    }
    return ok();
  }

  Result<void> mark_list(RecordCoder& coder, const ChunkList& list, std::set<ContentId>& seen) {
    for (std::uint64_t block = 0; block < list.block_count(); ++block) {
      const ContentId id = list.block(block);
      if (!seen.insert(id).second) continue;
      auto ids = store_.read_list(coder, list, block);
      // Only the damaged list itself is marked: its chunks' names cannot be read.
      if (!ids && ids.error().code() != ErrorCode::kCorrupt) return std::move(ids).error();
      store_.with_index([&](ChunkIndex& index) {
        index.mark(id, RecordKind::kList);
        if (!ids) return;
        for (const ContentId& chunk : *ids) index.mark(chunk, RecordKind::kChunk);
      });
    }
    return ok();
  }

  void count() {
    for (const auto& [number, bytes] : store_.pack_sizes()) use_[number].bytes = bytes;
    store_.with_index([this](ChunkIndex& index) {
      index.for_each([&](const ContentId& id, RecordKind kind, const Place& place, bool marked) {
        if (!marked) return;
        PackUse& use = use_[place.pack];
        use.records++;
        // Only the newest of several copies counts. The other copies are removed when their packs are
        // rewritten.
        if (!index.find(id, kind, [&place](const Place& other) { return other > place; }))
          use.live += record_bytes(place.stored_bytes) + sizeof(IndexEntry);
      });
    });
  }

  Result<void> remove(const std::set<std::uint64_t>& numbers) {
    CKPT_TRYV(store_.remove_packs(numbers));
    for (const std::uint64_t number : numbers) {
      report_.freed_bytes += static_cast<std::int64_t>(use_[number].bytes);
      report_.packs_removed++;
      use_.erase(number);
    }
    return ok();
  }

  Result<void> remove_dead() {
    std::set<std::uint64_t> dead;
    for (const auto& [number, use] : use_)
      if (use.records == 0) dead.insert(number);
    return remove(dead);
  }

  std::set<std::uint64_t> choose() const {
    std::set<std::uint64_t> chosen;
    std::uint64_t bytes = 0, dead = 0;
    std::vector<std::pair<double, std::uint64_t>> by_live_share;
    std::set<std::uint64_t> small;
    for (const auto& [number, use] : use_) {
      bytes += use.bytes;
      dead += use.dead();
      by_live_share.emplace_back(static_cast<double>(use.live) / static_cast<double>(use.bytes), number);
      if (use.bytes < options_.small_pack_bytes) small.insert(number);
    }
    std::sort(by_live_share.begin(), by_live_share.end());
    for (const auto& [share, number] : by_live_share) {
      if (static_cast<double>(dead) <= options_.max_dead_share * static_cast<double>(bytes)) break;
      const PackUse& use = use_.at(number);
      // A pack's own head, tail and padding do not justify a rewrite.
      if (use.live + sizeof(PackHead) + sizeof(PackTail) >= use.bytes) break;
      chosen.insert(number);
      dead -= use.dead();
      bytes -= use.dead();
    }
    if (small.size() > options_.max_small_packs) chosen.insert(small.begin(), small.end());
    return chosen;
  }

  // Writes one new pack at a time. Its records are removed from the old packs before the next pack begins.
  // Little more space is therefore used than is freed.
  Result<void> rewrite(const std::set<std::uint64_t>& chosen) {
    std::set<std::uint64_t> group;
    std::uint64_t bytes = 0;
    for (const std::uint64_t number : chosen) {
      if (!group.empty() && bytes + use_[number].live > options_.max_pack_bytes) {
        CKPT_TRYV(rewrite_group(group));
        group.clear();
        bytes = 0;
      }
      group.insert(number);
      bytes += use_[number].live;
    }
    return group.empty() ? ok() : rewrite_group(group);
  }

  Result<void> rewrite_group(const std::set<std::uint64_t>& group) {
    CKPT_TRY(writer, PackWriter::create(store_.files(), store_.budget(), store_.pack_folder(),
                                        store_.allocate_pack_number(), true));
    std::set<std::uint64_t> copied;
    std::set<ContentId> written;
    for (const std::uint64_t number : group) {
      CKPT_TRY(whole, copy_live(*writer, number, group, written));
      if (whole) copied.insert(number);
    }
    if (writer->index().empty()) return remove(copied);
    CKPT_TRYV(writer->finish());
    CKPT_TRYV(writer->sync());
    CKPT_TRYV(writer->publish());
    if (auto synced = store_.files().sync_folder(store_.pack_folder()); !synced) {
      store_.break_off();
      return synced;
    }
    PackUse& use = use_[writer->number()];
    use.bytes = writer->bytes();
    use.records = writer->index().size();
    for (const IndexEntry& entry : writer->index())
      use.live += record_bytes(entry.stored_bytes) + sizeof(IndexEntry);
    report_.packs_written++;
    report_.rewritten_bytes += writer->bytes();
    report_.freed_bytes -= static_cast<std::int64_t>(writer->bytes());
    store_.add_pack(writer->number(), writer->bytes(), writer->index());
    return remove(copied);
  }

  struct LiveRecord {
    Place place;
    ContentId id;
    RecordKind kind = RecordKind::kInvalid;
  };
  std::vector<LiveRecord> live_records(std::uint64_t pack) const {
    std::vector<LiveRecord> records;
    store_.with_index([&](ChunkIndex& index) {
      index.for_each([&](const ContentId& id, RecordKind kind, const Place& place, bool marked) {
        if (marked && place.pack == pack) records.push_back({place, id, kind});
      });
    });
    std::sort(records.begin(), records.end(),
              [](const LiveRecord& a, const LiveRecord& b) { return a.place < b.place; });
    return records;
  }

  // Reads the record at `place` into `bytes`. Returns kCorrupt if the bytes there are not that record.
  Result<RecordHead> read_intact(const LiveRecord& record, const Place& place,
                                 std::vector<std::byte>& bytes) {
    CKPT_TRY(file, store_.open_pack(place.pack));
    bytes.resize(record_bytes(place.stored_bytes));
    CKPT_TRY(count, file->read_at(place.offset, bytes));
    bytes.resize(count);
    CKPT_TRY(head, read_record_head(bytes));
    if (head.id != record.id || head.kind != record.kind)
      return Error(ErrorCode::kCorrupt, "A different record is at this position");
    CKPT_TRYV(check_payload(head, bytes));
    return head;
  }

  Result<bool> has_other_copy(const LiveRecord& record, const std::set<std::uint64_t>& group,
                              std::vector<std::byte>& bytes) {
    for (const Place& other : store_.places(record.id, record.kind)) {
      if (group.contains(other.pack)) continue;
      auto intact = read_intact(record, other, bytes);
      if (intact) return true;
      if (intact.error().code() != ErrorCode::kCorrupt) return std::move(intact).error();
    }
    return false;
  }

  // Copies the live records. Returns false if a live record is damaged; the pack then stays for inspection.
  Result<bool> copy_live(PackWriter& writer, std::uint64_t number, const std::set<std::uint64_t>& group,
                         std::set<ContentId>& written) {
    std::vector<std::byte> bytes;
    bool whole = true;
    for (const LiveRecord& record : live_records(number)) {
      if (written.contains(record.id)) continue;
      CKPT_TRY(elsewhere, has_other_copy(record, group, bytes));
      if (elsewhere) continue;
      auto head = read_intact(record, record.place, bytes);
      if (!head && head.error().code() != ErrorCode::kCorrupt) return std::move(head).error();
      if (!head) {
        whole = false;
        continue;
      }
      const auto payload = std::span<const std::byte>(bytes).subspan(sizeof(RecordHead), head->stored_bytes);
      CKPT_TRYV(writer.append(*head, payload));
      written.insert(record.id);
    }
    return whole;
  }

  JobStore& store_;
  const CollectOptions& options_;
  std::map<std::uint64_t, PackUse> use_;
  CollectReport report_;
};

}  // namespace

Result<CollectReport> collect(const std::shared_ptr<JobStore>& store, const CollectOptions& options) {
  const auto exclusive = JobStore::begin_exclusive(store);
  if (!exclusive) return exclusive.error();
  return Collection(*store, options).run();
}

}  // namespace ckpt::checkpoint_store
