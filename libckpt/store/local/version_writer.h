// SPDX-License-Identifier: Apache-2.0
// Writes one version of a job. Every chunk of every region is either put (its bytes) or kept (unchanged since
// the parent). commit() refuses while a chunk is neither, so that an overlooked chunk never gets old content.
// A chunk may be put again (a round that ran ahead of the barrier): the last content counts.
//
//   CKPT_TRY(writer, store->begin_version("job", {.chunk_bytes = 65536}));        // parent: the newest
//   CKPT_TRY(region, writer->add_region({rank, id, generation, region_bytes, "name"}));
//   CKPT_TRYV(writer->put_chunk(region, dirty_chunk, bytes));                     // each, on any thread
//   CKPT_TRYV(writer->reuse_rest(region));
//   for (auto chunk : writer->missing(region)) put(chunk);  // nothing to keep: a new region, or a damaged chunk
//   CKPT_TRYV(writer->put_blob("rank.0.host", host_state));
//   CKPT_TRY(version, writer->commit({.step = 7}));     // on the disk, or not there at all
//
// Cost: new content is hashed, packed if that saves space, and appended. Lists are written for blocks of 256
// chunks in which a chunk changed. Memory: 4 MiB, a bit per chunk, and 4 KiB for each block in which a chunk
// is put. Syncs: one for each pack (one pack in most versions), one for the version's file, and one for each
// of both folders.
//
// Threads: any number of threads may call put_chunk, reuse_chunk and reuse_rest. One thread may call the
// other functions while none of these runs. Errors: kRefused: no space, the limit, or missing chunks;
// existing versions are unchanged then. After any error of commit() except missing chunks the version is
// abandoned. After kIo the version may or may not be on the disk; the next opening of the checkpoint store
// shows which.
#pragma once

#include <bitset>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/store/local/job_store.h"
#include "libckpt/store/local/version.h"

namespace ckpt::checkpoint_store {

struct RegionKey {
  std::uint32_t rank = 0;
  std::uint64_t id = 0;
};

struct VersionInput {
  std::optional<std::uint64_t> parent;  // the number of the parent version; by default, the newest readable
                                        // version; 0 for none, so that everything is put
  std::uint64_t chunk_bytes = 64 << 10;
  std::uint64_t incarnation = 0;
  std::uint64_t first_number = 0;  // the least number that the version may get
  std::vector<std::byte> job_record;
  bool compress = true;
};

struct VersionLabels {
  std::uint64_t step = 0;
  std::vector<Label> labels;
};

class VersionWriter {
 public:
  // Creates a writer for CheckpointStore::begin_version.
  static Result<std::unique_ptr<VersionWriter>> create(const std::shared_ptr<JobStore>& store,
                                                       std::uint64_t max_pack_bytes, VersionInput input);
  // Abandons a version that was not committed.
  ~VersionWriter();
  VersionWriter(const VersionWriter&) = delete;
  VersionWriter& operator=(const VersionWriter&) = delete;

  [[nodiscard]] std::uint64_t number() const noexcept { return version_.number; }
  [[nodiscard]] std::uint64_t parent() const noexcept { return version_.parent; }

  // Adds a region. Chunks can be kept from the parent's region of the same rank, id, generation and size.
  // With `from`, they can be kept from the named region of the same size (ids changed, as after a move).
  Result<std::uint32_t> add_region(const Region& region, std::optional<RegionKey> from = std::nullopt);
  Result<void> put_chunk(std::uint32_t region, std::uint64_t chunk, std::span<const std::byte> bytes);
  // Keeps a chunk. Returns kNotFound if there is nothing to keep (no such region in the parent, or the chunk
  // is damaged on the disk): put the chunk instead.
  Result<void> reuse_chunk(std::uint32_t region, std::uint64_t chunk);
  // Keeps all chunks that were not put, as far as there is something to keep.
  Result<void> reuse_rest(std::uint32_t region);
  [[nodiscard]] std::vector<std::uint64_t> missing(std::uint32_t region) const;

  Result<void> put_blob(const std::string& name, std::span<const std::byte> bytes);

  Result<std::shared_ptr<const Version>> commit(const VersionLabels& labels);
  void abandon();

 private:
  struct Block {
    std::optional<ContentId> list_id;             // the list record's name in the parent
    std::unique_ptr<std::vector<ContentId>> ids;  // the names of the block's chunks; set once a chunk was put
    std::bitset<kListChunks> accounted;
    std::bitset<kListChunks> unkeepable;
  };
  struct List {
    ChunkList list;
    std::vector<Block> blocks;
  };

  VersionWriter(std::shared_ptr<JobStore> store, JobStore::Exclusive exclusive, std::uint64_t max_pack_bytes,
                bool compress);
  Result<List> make_list(const ChunkList& wanted, const ChunkList* parent);
  Result<void> find_damage(List& list);
  Result<void> open_block(RecordCoder& coder, List& list, std::uint64_t block);
  Result<void> set_chunk(RecordCoder& coder, List& list, std::uint64_t chunk, const ContentId& id);
  Result<List*> list_of(std::uint32_t region, std::uint64_t chunk);
  // Hashes the content and stores it unless it is already stored. Returns the content's name.
  Result<ContentId> store(RecordCoder& coder, RecordKind kind, std::span<const std::byte> plain);
  [[nodiscard]] bool is_stored(const ContentId& id, RecordKind kind) const;
  Result<void> append(RecordKind kind, const ContentId& id, std::span<const std::byte> plain,
                      const Packed& packed);
  Result<void> append_to_pack(const RecordHead& head, std::span<const std::byte> payload);
  Result<void> check_complete() const;
  Result<ChunkList> close_list(RecordCoder& coder, List& list);
  Result<void> close_lists();
  Result<void> publish_packs();
  Result<void> publish_version();
  void hand_over();

  const std::shared_ptr<JobStore> store_;
  std::optional<JobStore::Exclusive> exclusive_;
  const std::uint64_t max_pack_bytes_;
  const bool compress_;
  std::shared_ptr<const Version> parent_;
  Version version_;
  std::uint64_t version_bytes_ = 0;
  bool open_ = true;

  mutable std::mutex mutex_;  // guards all members below
  std::vector<List> regions_;
  std::vector<List> blobs_;
  std::vector<std::unique_ptr<PackWriter>> packs_;
  std::optional<Error> failed_;  // the error of a failed write, after which this version cannot be committed
  struct IdHash {
    std::size_t operator()(const ContentId& id) const { return id.prefix(); }
  };
  std::unordered_map<ContentId, RecordKind, IdHash> written_;
};

}  // namespace ckpt::checkpoint_store
