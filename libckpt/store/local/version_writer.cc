// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/local/version_writer.h"

#include <algorithm>

#include "libckpt/base/clock.h"
#include "libckpt/datapath/codec/codec.h"

namespace ckpt::checkpoint_store {
namespace {

constexpr std::size_t kMaxMissingNamed = 1 << 20;

Error is_over() {
  return {ErrorCode::kInvalidArgument, "This version has already been committed or abandoned"};
}

std::string quoted(const Region& region) {
  return "Region " + std::to_string(region.id) + (region.name.empty() ? "" : " \"" + region.name + "\"") +
         " of rank " + std::to_string(region.rank);
}

}  // namespace

VersionWriter::VersionWriter(std::shared_ptr<JobStore> store, JobStore::Exclusive exclusive,
                             std::uint64_t max_pack_bytes, bool compress)
    : store_(std::move(store)),
      exclusive_(std::move(exclusive)),
      max_pack_bytes_(max_pack_bytes),
      compress_(compress) {}

VersionWriter::~VersionWriter() {
  abandon();
}

Result<std::unique_ptr<VersionWriter>> VersionWriter::create(const std::shared_ptr<JobStore>& store,
                                                             std::uint64_t max_pack_bytes,
                                                             VersionInput input) {
  if (!is_chunk_size(input.chunk_bytes))
    return Error(ErrorCode::kInvalidArgument,
                 "Chunks of " + std::to_string(input.chunk_bytes) +
                     " bytes cannot be stored: the size must be a power of two from 256 bytes to 16 MiB");
  CKPT_TRY(exclusive, JobStore::begin_exclusive(store));
  std::unique_ptr<VersionWriter> writer(
      new VersionWriter(store, std::move(exclusive), max_pack_bytes, input.compress));
  if (!input.parent) {
    const auto versions = store->versions();
    if (!versions.empty()) writer->parent_ = versions.back();
  } else if (*input.parent != 0) {
    CKPT_TRY(parent, store->find_version(*input.parent));
    writer->parent_ = parent;
  }
  Version& version = writer->version_;
  version.job = store->job();
  version.number = std::max(store->next_version(), input.first_number);
  version.parent = writer->parent_ ? writer->parent_->number : 0;
  version.incarnation = input.incarnation;
  version.chunk_bytes = input.chunk_bytes;
  version.job_record = std::move(input.job_record);
  version.content_key.assign(store->key().begin(), store->key().end());
  return writer;
}

Result<VersionWriter::List> VersionWriter::make_list(const ChunkList& wanted, const ChunkList* parent) {
  List list;
  list.list = wanted;
  list.list.blocks.clear();
  list.blocks.resize(wanted.block_count());
  const bool same =
      parent != nullptr && parent->bytes == wanted.bytes && parent->chunk_bytes == wanted.chunk_bytes;
  if (!same) return list;
  for (std::size_t i = 0; i < list.blocks.size(); ++i) list.blocks[i].list_id = parent->block(i);
  if (store_->has_damaged()) {
    CKPT_TRYV(find_damage(list));
  }
  return list;
}

// Marks content that is known to be damaged on the disk, so that it is not carried over to new versions.
Result<void> VersionWriter::find_damage(List& list) {
  CKPT_TRY(coder, store_->coders().borrow(kBlobChunkBytes));
  ChunkList parent = list.list;
  for (Block& block : list.blocks)
    parent.blocks.insert(parent.blocks.end(), block.list_id->bytes.begin(), block.list_id->bytes.end());
  for (std::uint64_t i = 0; i < list.blocks.size(); ++i) {
    auto ids = store_->read_list(*coder, parent, i);
    if (!ids && ids.error().code() != ErrorCode::kCorrupt) return std::move(ids).error();
    if (!ids) {
      list.blocks[i].list_id.reset();
      continue;
    }
    for (std::size_t c = 0; c < ids->size(); ++c)
      if (store_->is_damaged((*ids)[c])) list.blocks[i].unkeepable.set(c);
  }
  return ok();
}

Result<std::uint32_t> VersionWriter::add_region(const Region& region, std::optional<RegionKey> from) {
  if (!open_) return is_over();
  if (region.list.bytes == 0) return Error(ErrorCode::kInvalidArgument, quoted(region) + " is empty");
  for (const Region& other : version_.regions)
    if (other.rank == region.rank && other.id == region.id)
      return Error(ErrorCode::kInvalidArgument, quoted(region) + " exists already");
  Region added = region;
  added.list.chunk_bytes = version_.chunk_bytes;
  const ChunkList* earlier = nullptr;
  const RegionKey key = from.value_or(RegionKey{region.rank, region.id});
  if (parent_) {
    for (const Region& old : parent_->regions)
      if (old.rank == key.rank && old.id == key.id && (from || old.generation == region.generation))
        earlier = &old.list;
  }
  CKPT_TRY(list, make_list(added.list, earlier));
  version_.regions.push_back(std::move(added));
  regions_.push_back(std::move(list));
  return static_cast<std::uint32_t>(regions_.size() - 1);
}

Result<VersionWriter::List*> VersionWriter::list_of(std::uint32_t region, std::uint64_t chunk) {
  if (!open_) return is_over();
  if (region >= regions_.size() || chunk >= regions_[region].list.chunk_count())
    return Error(ErrorCode::kInvalidArgument, "Chunk " + std::to_string(chunk) + " of region number " +
                                                  std::to_string(region) + " does not exist");
  return &regions_[region];
}

// Loads the block's names into memory. The caller must hold the lock.
Result<void> VersionWriter::open_block(RecordCoder& coder, List& list, std::uint64_t index) {
  Block& block = list.blocks[index];
  if (block.ids) return ok();
  std::vector<ContentId> ids(list.list.chunks_of_block(index));
  if (block.list_id) {
    std::vector<std::byte> plain(ids.size() * sizeof(ContentId));
    auto read = store_->read_record(coder, *block.list_id, RecordKind::kList, plain);
    if (read) {
      CKPT_TRY(parent_ids, decode_list(plain, ids.size()));
      ids = std::move(parent_ids);
    } else if (read.error().code() == ErrorCode::kCorrupt) {
      // Nothing of the block can be kept: its kept chunks must be put instead.
      block.list_id.reset();
      block.accounted.reset();
    } else {
      return std::move(read).error();
    }
  }
  block.ids = std::make_unique<std::vector<ContentId>>(std::move(ids));
  return ok();
}

Result<void> VersionWriter::set_chunk(RecordCoder& coder, List& list, std::uint64_t chunk,
                                      const ContentId& id) {
  CKPT_TRYV(open_block(coder, list, chunk / kListChunks));
  Block& block = list.blocks[chunk / kListChunks];
  (*block.ids)[chunk % kListChunks] = id;
  block.accounted.set(chunk % kListChunks);
  return ok();
}

bool VersionWriter::is_stored(const ContentId& id, RecordKind kind) const {
  {
    const std::lock_guard lock(mutex_);
    const auto found = written_.find(id);
    if (found != written_.end() && found->second == kind) return true;
  }
  return store_->contains(id, kind);
}

// Appends a record. The caller must hold the lock.
Result<void> VersionWriter::append_to_pack(const RecordHead& head, std::span<const std::byte> payload) {
  if (packs_.empty() || packs_.back()->bytes() >= max_pack_bytes_) {
    if (!packs_.empty()) {
      CKPT_TRYV(packs_.back()->finish());
    }
    CKPT_TRY(pack, PackWriter::create(store_->files(), store_->budget(), store_->pack_folder(),
                                      store_->allocate_pack_number(), false));
    packs_.push_back(std::move(pack));
  }
  CKPT_TRYV(packs_.back()->append(head, payload));
  return ok();
}

Result<void> VersionWriter::append(RecordKind kind, const ContentId& id, std::span<const std::byte> plain,
                                   const Packed& packed) {
  const RecordHead head = make_record_head(kind, packed.packing, id, plain.size(), packed.payload);
  const std::lock_guard lock(mutex_);
  // A pack with a failed write accepts no more records, since it may end in half a record.
  if (failed_) return *failed_;
  if (auto appended = append_to_pack(head, packed.payload); !appended) {
    failed_ = appended.error();
    return appended;
  }
  written_[id] = kind;
  if (kind == RecordKind::kChunk) {
    version_.new_chunks++;
    version_.new_plain_bytes += plain.size();
  }
  return ok();
}

Result<ContentId> VersionWriter::store(RecordCoder& coder, RecordKind kind,
                                       std::span<const std::byte> plain) {
  if (kind == RecordKind::kChunk && codec::is_zero(plain)) return kZeroContent;
  CKPT_TRY(id, coder.id_of(kind, plain));
  if (!is_stored(id, kind)) {
    CKPT_TRYV(append(kind, id, plain, coder.pack(plain, compress_)));
  }
  return id;
}

Result<void> VersionWriter::put_chunk(std::uint32_t region, std::uint64_t chunk,
                                      std::span<const std::byte> bytes) {
  CKPT_TRY(list, list_of(region, chunk));
  if (bytes.size() != list->list.bytes_of_chunk(chunk))
    return Error(ErrorCode::kInvalidArgument, "Chunk " + std::to_string(chunk) + " of " +
                                                  quoted(version_.regions[region]) + " with " +
                                                  std::to_string(bytes.size()) + " bytes");
  CKPT_TRY(coder, store_->coders().borrow(version_.chunk_bytes));
  CKPT_TRY(id, store(*coder, RecordKind::kChunk, bytes));
  const std::lock_guard lock(mutex_);
  return set_chunk(*coder, *list, chunk, id);
}

Result<void> VersionWriter::reuse_chunk(std::uint32_t region, std::uint64_t chunk) {
  CKPT_TRY(list, list_of(region, chunk));
  const std::lock_guard lock(mutex_);
  Block& block = list->blocks[chunk / kListChunks];
  if (!block.list_id || block.unkeepable.test(chunk % kListChunks))
    return Error(ErrorCode::kNotFound, "Chunk " + std::to_string(chunk) + " of " +
                                           quoted(version_.regions[region]) +
                                           " cannot be kept: the previous version does not have it");
  block.accounted.set(chunk % kListChunks);
  return ok();
}

Result<void> VersionWriter::reuse_rest(std::uint32_t region) {
  CKPT_TRY(list, list_of(region, 0));
  const std::lock_guard lock(mutex_);
  for (Block& block : list->blocks)
    if (block.list_id) block.accounted |= ~block.unkeepable;
  return ok();
}

std::vector<std::uint64_t> VersionWriter::missing(std::uint32_t region) const {
  std::vector<std::uint64_t> chunks;
  const std::lock_guard lock(mutex_);
  if (region >= regions_.size()) return chunks;
  const List& list = regions_[region];
  for (std::uint64_t i = 0; i < list.list.chunk_count() && chunks.size() < kMaxMissingNamed; ++i)
    if (!list.blocks[i / kListChunks].accounted.test(i % kListChunks)) chunks.push_back(i);
  return chunks;
}

Result<void> VersionWriter::put_blob(const std::string& name, std::span<const std::byte> bytes) {
  if (!open_) return is_over();
  if (name.empty() || name.size() > 255)
    return Error(ErrorCode::kInvalidArgument, "A blob's name must have 1 to 255 bytes");
  for (const Blob& other : version_.blobs)
    if (other.name == name) return Error(ErrorCode::kInvalidArgument, "Blob " + name + " exists already");
  Blob blob;
  blob.name = name;
  blob.list.bytes = bytes.size();
  blob.list.chunk_bytes = kBlobChunkBytes;
  CKPT_TRY(list, make_list(blob.list, nullptr));
  CKPT_TRY(coder, store_->coders().borrow(kBlobChunkBytes));
  for (std::uint64_t i = 0; i < blob.list.chunk_count(); ++i) {
    const auto piece = bytes.subspan(i * kBlobChunkBytes, blob.list.bytes_of_chunk(i));
    CKPT_TRY(id, store(*coder, RecordKind::kChunk, piece));
    CKPT_TRYV(set_chunk(*coder, list, i, id));
  }
  version_.blobs.push_back(std::move(blob));
  blobs_.push_back(std::move(list));
  return ok();
}

Result<void> VersionWriter::check_complete() const {
  for (std::uint32_t r = 0; r < regions_.size(); ++r) {
    const auto chunks = missing(r);
    if (!chunks.empty())
      return Error(ErrorCode::kRefused,
                   quoted(version_.regions[r]) + " is not complete: chunk " + std::to_string(chunks[0]) +
                       (chunks.size() == 1 ? "" : " and others") + " were neither stored nor kept");
  }
  return ok();
}

Result<ChunkList> VersionWriter::close_list(RecordCoder& coder, List& list) {
  ChunkList closed = list.list;
  for (Block& block : list.blocks) {
    if (block.ids) {
      CKPT_TRY(id, store(coder, RecordKind::kList, std::as_bytes(std::span(*block.ids))));
      block.list_id = id;
      block.ids.reset();
    }
    closed.blocks.insert(closed.blocks.end(), block.list_id->bytes.begin(), block.list_id->bytes.end());
  }
  return closed;
}

Result<void> VersionWriter::close_lists() {
  CKPT_TRY(coder, store_->coders().borrow(kBlobChunkBytes));
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    CKPT_TRY(list, close_list(*coder, regions_[i]));
    version_.regions[i].list = std::move(list);
  }
  for (std::size_t i = 0; i < blobs_.size(); ++i) {
    CKPT_TRY(list, close_list(*coder, blobs_[i]));
    version_.blobs[i].list = std::move(list);
  }
  return ok();
}

// Publishes the packs: all content that the version names is on the disk before the version is.
Result<void> VersionWriter::publish_packs() {
  if (packs_.empty()) return ok();
  CKPT_TRYV(packs_.back()->finish());
  for (const auto& pack : packs_) {
    CKPT_TRYV(pack->sync());
  }
  for (const auto& pack : packs_) {
    CKPT_TRYV(pack->publish());
  }
  CKPT_TRYV(store_->files().sync_folder(store_->pack_folder()));
  for (const auto& pack : packs_) version_.written_bytes += pack->bytes();
  return ok();
}

Result<void> VersionWriter::publish_version() {
  const auto bytes = encode_version(version_);
  version_bytes_ = bytes.size();
  CKPT_TRYV(store_->budget().charge(version_bytes_));
  auto written = write_whole(store_->files(), store_->version_folder(), version_name(version_.number), bytes);
  if (written) return ok();
  store_->budget().give_back(version_bytes_);
  return written;
}

void VersionWriter::hand_over() {
  for (const auto& pack : packs_) {
    for (const IndexEntry& entry : pack->index()) store_->erase_damaged(entry.id);
    store_->add_pack(pack->number(), pack->bytes(), pack->index());
  }
}

Result<std::shared_ptr<const Version>> VersionWriter::commit(const VersionLabels& labels) {
  if (!open_) return is_over();
  CKPT_TRYV(check_complete());
  version_.step = labels.step;
  version_.labels = labels.labels;
  version_.created_ms = wall_clock_ms();
  auto closed = failed_ ? Result<void>(*failed_) : close_lists();
  if (closed) closed = publish_packs();
  if (!closed) {
    const auto is_published = [](const auto& pack) { return pack->published(); };
    if (std::any_of(packs_.begin(), packs_.end(), is_published)) store_->break_off();
    abandon();
    return std::move(closed).error();
  }
  // From here on the packs stay in any case: the version's file may be on the disk even after an error. A
  // collection removes packs without a version.
  hand_over();
  packs_.clear();
  auto published = publish_version();
  if (!published) {
    if (published.error().code() != ErrorCode::kRefused) store_->break_off();
    abandon();
    return std::move(published).error();
  }
  auto version = std::make_shared<const Version>(std::move(version_));
  store_->add_version(version, version_bytes_);
  abandon();  // drops the data that was needed only for writing
  return version;
}

void VersionWriter::abandon() {
  open_ = false;
  packs_.clear();
  parent_.reset();
  exclusive_.reset();
}

}  // namespace ckpt::checkpoint_store
