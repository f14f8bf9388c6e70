// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/target/receiver_core.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "libckpt/base/check.h"
#include "libckpt/datapath/engine/target/target_codec.h"

namespace ckpt::engine {

std::shared_ptr<TargetRegion> ReceiverCore::find(std::uint64_t id, std::uint64_t generation) const {
  const auto it = regions_.find(id);
  return it != regions_.end() && it->second->region.generation == generation ? it->second : nullptr;
}

Result<std::span<std::byte>> ReceiverCore::pin_source_memory(UniqueFd file, std::size_t bytes) {
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0)
    return Error::from_errno("Cannot inspect the source's staging memory");
  const std::lock_guard lock(mutex_);
  if (!source_memory_) {
    if (bytes > kMaxSourceBytes)
      return Error(ErrorCode::kRefused, "The source uses " + std::to_string(bytes) +
                                            " bytes for staging, more than the target pins for the source");
    CKPT_TRY(memory, PinnedMemory::open(device, std::move(file), bytes));
    source_memory_.emplace(std::move(memory));
    source_file_ = facts.st_ino;
  }
  if (facts.st_ino != source_file_ || bytes != source_memory_->bytes().size())
    return Error(ErrorCode::kRefused, "The source uses more than one file for staging");
  return source_memory_->bytes();
}

Result<void> ReceiverCore::place(const LaneHeader& header, std::span<const std::byte> bytes,
                                 std::size_t payload_bytes, std::span<Placed> places) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    if (chunk_bytes_ == 0) return Error(ErrorCode::kProtocol, "The source sent chunks before a plan");
    if (header.round < verify_round_ || verified_.load())
      return Error(ErrorCode::kProtocol,
                   "The source sent a chunk of an earlier round after the verification began");
    first = !std::exchange(first_chunk_seen_, true);
    std::size_t payload_left = payload_bytes;
    std::size_t decoded_bytes = 0;
    for (std::uint32_t i = 0; i < header.count; ++i) {
      const auto record = record_at<ChunkRecord>(bytes, i);
      Placed& placed = places[i];
      placed = {};
      placed.encoding = static_cast<codec::Encoding>(record.encoding);
      const bool zero = placed.encoding == codec::Encoding::kZero;
      if (placed.encoding == codec::Encoding::kInvalid || placed.encoding > codec::Encoding::kLast)
        return Error(ErrorCode::kProtocol, "A chunk has encoding " + std::to_string(record.encoding) +
                                               ", which this build does not support");
      if (record.bytes > payload_left || zero != (record.bytes == 0))
        return Error(ErrorCode::kProtocol, "A chunk's size does not match its message");
      payload_left -= record.bytes;
      placed.bytes = record.bytes;
      placed.region = find(record.region, record.generation);
      if (!placed.region) continue;
      TargetRegion& target = *placed.region;
      if (record.chunk >= target.known.size())
        return Error(ErrorCode::kProtocol, "A chunk lies beyond its extent");
      const std::uint64_t length = chunk_length(target.region.bytes, chunk_bytes_, record.chunk);
      const bool raw = placed.encoding == codec::Encoding::kRaw;
      if (!zero && (raw ? record.bytes != length : record.bytes >= length))
        return Error(ErrorCode::kProtocol, "A chunk's length does not match its place and encoding");
      if (needs_decoder(placed.encoding)) decoded_bytes += length;
      if (decoded_bytes > kSlotBytes)
        return Error(ErrorCode::kProtocol,
                     "A message has more than " + std::to_string(kSlotBytes) + " bytes");
      placed.bytes = length;
      placed.address = target.region.address + record.chunk * chunk_bytes_;
      target.known[record.chunk] = 0;
      target.arrived_round[record.chunk] = header.round;
    }
    if (payload_left != 0) return Error(ErrorCode::kProtocol, "A message has bytes that belong to no chunk");
  }
  if (first) delegate.on_first_chunk();
  return ok();
}

void ReceiverCore::arrived(const LaneHeader& header, std::span<const ChunkRecord> records,
                           std::span<const Placed> places, std::span<const track::Fingerprint> fingerprints) {
  const std::lock_guard lock(mutex_);
  report_.last_chunk_ns = now_ns();
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (!places[i].region) continue;
    TargetRegion& target = *places[i].region;
    const std::uint32_t chunk = records[i].chunk;
    target.held[chunk] = fingerprints[i];
    target.known[chunk] = 1;
    if (table_ && header.round >= verify_round_)  // kNotFound means that the region was dropped meanwhile
      (void)table_->acknowledge(records[i].region, records[i].generation, chunk, fingerprints[i]);
  }
}

void ReceiverCore::drop(const DropRecord& record) {
  std::shared_ptr<TargetRegion> dropped;
  {
    const std::lock_guard lock(mutex_);
    dropped = find(record.region, record.generation);
    if (!dropped) return;
    regions_.erase(record.region);
    if (table_) table_->drop_region(record.region, record.generation);
  }
  dropped.reset();
  delegate.on_dropped(record.region);
}

// ---- blobs

ReceiverCore::IncomingBlob& ReceiverCore::blob_of(LaneMessage type) {
  if (type == LaneMessage::kPlan) return plan_;
  return type == LaneMessage::kManifest ? manifest_ : host_;
}

Result<std::byte*> ReceiverCore::begin_blob(LaneMessage type, IncomingBlob& blob, std::uint64_t total) {
  if (type != LaneMessage::kHostState) {
    if (total > max_plan_bytes_)
      return Error(ErrorCode::kProtocol,
                   "The plan or manifest has " + std::to_string(total) + " bytes: it is too long");
    blob = {};
    blob.bytes.resize(total);
  } else {
    if (total > max_host_bytes_ || host_begun_ || total == 0 ||
        (host_memory_ && total > host_memory_->limit()))
      return Error(ErrorCode::kProtocol,
                   "The host state has " + std::to_string(total) +
                       " bytes: it is too long, was sent twice, or is more than was announced");
    if (!host_memory_) {
      CKPT_TRY(reservation, HostMemoryReservation::create(total, 0));
      host_memory_ = std::move(reservation);
    }
    host_begun_ = true;
    blob = {};
  }
  blob.total = total;
  return type == LaneMessage::kHostState ? host_memory_->memory() : blob.bytes.data();
}

Result<void> ReceiverCore::reserve_host_memory(const HostMemoryRecord& wanted) {
  const std::lock_guard lock(mutex_);
  if (wanted.limit == 0 || wanted.limit > max_host_bytes_ || wanted.expected > wanted.limit || host_memory_)
    return Error(ErrorCode::kProtocol, "The host state has up to " + std::to_string(wanted.limit) +
                                           " bytes: it is too long, or was announced twice");
  CKPT_TRY(made, HostMemoryReservation::create(wanted.limit, wanted.expected));
  host_memory_ = std::move(made);
  return ok();
}

void ReceiverCore::wait_for_host_memory() {
  std::shared_ptr<HostMemoryReservation> reservation;
  {
    const std::lock_guard lock(mutex_);
    if (final_ || failed_.load()) return;
    reservation = host_memory_;
  }
  if (reservation) reservation->wait_until_filled();
}

void ReceiverCore::hurry() {
  const std::lock_guard lock(mutex_);
  if (host_memory_) host_memory_->hurry();
}

std::span<std::byte> ReceiverCore::blob_destination(const LaneHeader& header, const BlobRecord& record,
                                                    std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  IncomingBlob& blob = blob_of(header.type);
  if (record.offset == 0) {
    if (blob.begun != blob.received) return {};  // an earlier piece is still being received
    auto begun = begin_blob(header.type, blob, record.total);
    if (!begun) return {};
  }
  // The source has now completed the host state: this record states its final length.
  if (header.type == LaneMessage::kHostState && record.total < blob.total && blob.begun < record.total)
    blob.total = record.total;
  if (record.total != blob.total || record.offset != blob.begun || bytes > blob.total - blob.begun) return {};
  // If host_memory_ is not set any more, the host state was already verified.
  if (header.type == LaneMessage::kHostState && !host_memory_) return {};
  blob.begun += bytes;
  std::byte* base = header.type == LaneMessage::kHostState ? host_memory_->memory() : blob.bytes.data();
  return {base + record.offset, bytes};
}

Result<bool> ReceiverCore::blob_received(const LaneHeader& header, const BlobRecord& record,
                                         std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  IncomingBlob& blob = blob_of(header.type);
  if (bytes == 0 && record.total == 0) {
    if (header.type == LaneMessage::kHostState)
      return Error(ErrorCode::kProtocol, "The host state has no bytes");
    blob = {};
  } else if (bytes == 0 || record.offset != blob.received) {
    return Error(ErrorCode::kProtocol, "A piece of a blob is out of order");
  }
  blob.received += bytes;
  blob.complete = blob.received == blob.total;
  if (blob.complete && header.type == LaneMessage::kHostState) {
    if (!host_memory_) return Error(ErrorCode::kProtocol, "Host state arrived after its verification");
    CKPT_TRY(state, host_memory_->extract(blob.total));
    host_state_ = std::move(state);
  }
  return blob.complete;
}

void ReceiverCore::report_host_state() {
  std::shared_ptr<HostMemoryReservation> memory;
  std::uint64_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    memory = host_memory_;
    bytes = host_.received;
  }
  if (memory) delegate.on_host_state(memory, bytes);
}

Result<void> ReceiverCore::accept_plan() {
  std::vector<std::byte> bytes;
  {
    const std::lock_guard lock(mutex_);
    bytes = std::move(plan_.bytes);
    plan_ = {};
  }
  CKPT_TRY(places, delegate.on_plan(bytes));
  if (!is_chunk_size(places.chunk_bytes))
    return Error(ErrorCode::kProtocol,
                 "The plan has chunks of " + std::to_string(places.chunk_bytes) + " bytes");
  const std::lock_guard lock(mutex_);
  if (final_) return Error(ErrorCode::kProtocol, "A plan arrived after the final round began");
  if (chunk_bytes_ != 0 && chunk_bytes_ != places.chunk_bytes)
    return Error(ErrorCode::kProtocol, "A later plan has a different chunk size");
  chunk_bytes_ = places.chunk_bytes;
  for (TransferRegion& region : places.regions) {
    auto target = std::make_shared<TargetRegion>();
    const std::uint32_t chunks = chunk_count(region.bytes, chunk_bytes_);
    target->held.resize(chunks);
    target->known.resize(chunks);
    target->arrived_round.resize(chunks);
    auto& place = regions_[region.id];
    if (place && place->region.generation >= region.generation)
      return Error(ErrorCode::kProtocol, "A plan names extent " + std::to_string(region.id) + " again");
    target->region = std::move(region);
    if (table_) {
      CKPT_TRYV(table_->add_region(target->region.id, target->region.generation, target->region.bytes));
    }
    place = std::move(target);
  }
  return ok();
}

// ---- the verified handover

Result<void> ReceiverCore::begin_verify(std::uint32_t round, std::vector<track::ChunkRange>& ranges,
                                        std::vector<ScanItem>& items) {
  const std::lock_guard lock(mutex_);
  if (round == 0 || round < verify_round_ || chunk_bytes_ == 0 || (verify_round_ != 0 && !scan_ended_))
    return Error(ErrorCode::kProtocol, "A verification began without a plan, or during another verification");
  verify_round_ = round;
  scan_ended_ = false;
  table_.emplace(root_params_, chunk_bytes_);
  for (const auto& [id, target] : regions_) {
    const TransferRegion& region = target->region;
    CKPT_TRYV(table_->add_region(id, region.generation, region.bytes));
    for (std::uint32_t chunk = 0; chunk < target->known.size(); ++chunk) {
      if (target->known[chunk] == 0)
        continue;  // the chunk has not arrived yet and is fingerprinted on
                   // arrival
#if CKPT_WITHOUT_RULE == 4
      const bool scan = false;
#else
      const bool scan = target->arrived_round[chunk] < round;
#endif
      if (!scan) {
        CKPT_TRYV(table_->acknowledge(id, region.generation, chunk, target->held[chunk]));
        continue;
      }
      ranges.push_back(
          {region.address + chunk * chunk_bytes_, chunk_length(region.bytes, chunk_bytes_, chunk)});
      items.push_back({target, chunk});
    }
  }
  return ok();
}

Result<void> ReceiverCore::begin_final(std::uint32_t round) {
  const std::lock_guard lock(mutex_);
  if (final_ || verify_round_ == 0 || round < verify_round_)
    return Error(ErrorCode::kProtocol, "A final round began before a verification, or for a second time");
  final_ = true;
  if (host_memory_) host_memory_->hurry();
  report_.final_heard_ns = now_ns();
  for (const auto& [id, target] : regions_) report_.state_bytes += target->region.bytes;
  return ok();
}

void ReceiverCore::scanned(std::span<const ScanItem> items, std::span<const track::Fingerprint> fingerprints,
                           std::vector<AckRecord>& stale) {
  const std::lock_guard lock(mutex_);
  CKPT_CHECK(table_ && !scan_ended_ && items.size() == fingerprints.size(),
             "ENG-4: a scan belongs to the verification under way");
  for (std::size_t i = 0; i < items.size(); ++i) {
    TargetRegion& target = *items[i].region;
    const std::uint32_t chunk = items[i].chunk;
    if (target.arrived_round[chunk] >= verify_round_)
      continue;  // the chunk was written since and is
                 // fingerprinted on arrival
    if (fingerprints[i] == target.held[chunk]) {
      (void)table_->acknowledge(target.region.id, target.region.generation, chunk, fingerprints[i]);
      continue;
    }
    target.known[chunk] = 0;
    AckRecord record;
    record.region = target.region.id;
    record.generation = target.region.generation;
    record.chunk = chunk;
    record.fingerprint = fingerprints[i];
    stale.push_back(record);
  }
}

void ReceiverCore::end_scan(Nanos begin, Nanos end, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  CKPT_CHECK(table_ && !scan_ended_, "ENG-4: a verification has one scan");
  scan_ended_ = true;
  table_->refresh_root();
  report_.scan_begin_ns = begin;
  report_.scan_end_ns = end;
  report_.scanned_bytes = bytes;
}

Result<void> ReceiverCore::check_root(const track::Fingerprint& root) {
  const std::lock_guard lock(mutex_);
  report_.manifest_heard_ns = now_ns();
  if (!final_ || !table_ || !scan_ended_ || verified_.load())
    return Error(ErrorCode::kProtocol,
                 "A manifest arrived before the final round ended, or for a second time");
  if (host_begun_ && !host_.complete)
    return Error(ErrorCode::kProtocol, "A manifest arrived before all of the host state");
  CKPT_TRY(own, table_->root());
  if (own != root)
    return Error(ErrorCode::kCorrupt,
                 "The target's memory differs from the source's memory: the roots over all chunks differ");
  report_.root = own;
  return ok();
}

ReceiverCore::Answer ReceiverCore::verify(const track::Fingerprint& root) {
  Answer answer;
  answer.record.root = root;
  Result<void> result = check_root(root);
  if (result) result = delegate.on_manifest(manifest_.bytes, root, host_state_);
  answer.record.time_ns = now_ns();
  if (result) {
    const std::lock_guard lock(mutex_);
    report_.verified_ns = answer.record.time_ns;
    verified_.store(true);
  } else {
    answer.record.code = static_cast<std::uint32_t>(result.error().code());
    answer.text = result.error().to_string();
    fail(result.error());
  }
  return answer;
}

void ReceiverCore::verified() {
  if (!verified_.load()) return;
  delegate.on_verified(report_, std::move(host_state_));
  const std::lock_guard lock(mutex_);
  host_memory_.reset();
}

void ReceiverCore::fail(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = error;
    failed_.store(true);
    if (host_memory_) host_memory_->hurry();
  }
  delegate.on_failed(error);
}

std::optional<Error> ReceiverCore::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

}  // namespace ckpt::engine
