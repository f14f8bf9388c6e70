// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/snapshots/snapshot_memory.h"

#include <algorithm>

namespace ckpt::mover {
namespace {

constexpr std::uint32_t kNoSlot = 0xffff'ffff;
constexpr std::uint32_t kZeroSlot = 0xffff'fffe;  // slot for zero chunks, which are not staged
// The amount that is scanned and copied in one piece. A job that frees memory waits until the current piece
// is complete.
constexpr std::uint64_t kPieceBytes = std::uint64_t{256} << 20;
constexpr std::size_t kPieceChunks = 8192;
constexpr std::uint32_t kSampledOf = 16;  // denominator of the sample: one chunk in kSampledOf is read

bool has_memory(std::uint32_t slot) {
  return slot != kNoSlot && slot != kZeroSlot;
}

}  // namespace

SnapshotMemory::SnapshotMemory(const Device& device, LastSnapshot& last, MemorySource& source,
                               const SnapshotMemoryOptions& options)
    : device_(device),
      last_(last),
      source_(source),
      options_(options),
      arena_(device, options.chunk_bytes, options.staging_bytes),
      zero_(track::fingerprint_of_zeroes(*last.params, options.chunk_bytes)),
      zeroes_(options.chunk_bytes) {}

Result<std::unique_ptr<SnapshotMemory>> SnapshotMemory::create(const Device& device, LastSnapshot& last,
                                                               MemorySource& source,
                                                               const SnapshotMemoryOptions& options) {
  std::unique_ptr<SnapshotMemory> memory(new SnapshotMemory(device, last, source, options));
  const ContextScope scope(device);
  CKPT_CUDA_TRY(device.api(), cuStreamCreate(&memory->stream_, CU_STREAM_NON_BLOCKING));
  last.scan->resume();
  return memory;
}

SnapshotMemory::~SnapshotMemory() {
  if (stream_ == nullptr) return;
  const ContextScope scope(device_);
  device_.api().cuStreamDestroy_v2(stream_);
}

void SnapshotMemory::cancel() {
  cancelled_.store(true);
  last_.scan->cancel();
}

Result<std::uint64_t> SnapshotMemory::estimate_dirty(const image::Plan& plan) {
  last_.scan->narrow().set_duty(options_.duty);
  CKPT_TRYV(line_up(plan));
  std::vector<Chunk> sample;
  std::uint64_t dirty = 0;
  for (Extent* extent : order_) {
    if (extent->known == nullptr) dirty += extent->place.bytes;
    for (std::uint32_t i = 0; extent->known != nullptr && i < extent->chunks; i += kSampledOf)
      sample.push_back({extent, i});
  }
  for (std::span<const Chunk> left(sample); !left.empty();) {
    const auto piece = left.first(std::min(left.size(), kPieceChunks));
    left = left.subspan(piece.size());
    if (cancelled_.load()) return Error(ErrorCode::kAborted, "The snapshot was canceled");
    const auto held = source_.hold();
    CKPT_TRYV(find_ranges(piece));
    CKPT_TRYV(last_.scan->narrow().scan(ranges_, fingerprints_));
    for (std::size_t i = 0; i < piece.size(); ++i)
      if (piece[i].extent->known->fingerprints[piece[i].index] != fingerprints_[i])
        dirty += kSampledOf * options_.chunk_bytes;
  }
  return dirty;
}

Result<void> SnapshotMemory::run_ahead(const image::Plan& plan) {
  last_.scan->narrow().set_duty(options_.duty);
  return run_round(plan, false);
}

Result<void> SnapshotMemory::run_final(const image::Plan& plan) {
  return run_round(plan, true);
}

Result<void> SnapshotMemory::run_round(const image::Plan& plan, bool final) {
  dirty_bytes_ = staged_bytes_ = 0;
  scan_ns_ = copy_ns_ = 0;
  full_ = false;
  waiting_.clear();
  CKPT_TRYV(line_up(plan));
  std::vector<Chunk> piece;
  std::uint64_t bytes = 0;
  const auto run = [&]() -> Result<void> {
    if (!piece.empty()) {
      CKPT_TRYV(run_piece(piece, final));
    }
    piece.clear();
    bytes = 0;
    return ok();
  };
  for (Extent* extent : order_) {
    for (std::uint32_t i = 0; i < extent->chunks; ++i) {
      piece.push_back({extent, i});
      bytes += options_.chunk_bytes;
      // A stopped job frees no memory, and each gap would extend its pause.
      if (final || (bytes < kPieceBytes && piece.size() < kPieceChunks)) continue;
      CKPT_TRYV(run());
    }
  }
  return run();
}

// Takes the extents of the plan in their order. Extents that are no longer in the plan release their places
// in staging.
Result<void> SnapshotMemory::line_up(const image::Plan& plan) {
  order_.clear();
  for (const auto& [place, extent] : all_) extent->in_plan = false;
  const auto held = source_.hold();
  for (const image::Extent& extent : plan.extents) {
    const auto found = source_.find(extent.region);
    const std::string& name = plan.tensors[extent.tensor].name;
    if (!found)
      return Error(ErrorCode::kAborted, "Tensor \"" + name + "\" lies in memory that the job has freed");
    if (extent.offset > found->bytes || extent.bytes > found->bytes - extent.offset)
      return Error(ErrorCode::kInvalidArgument, "Tensor \"" + name + "\" lies outside its allocation");
    const MemoryPlace place{extent.region, found->generation, extent.offset, extent.bytes};
    order_.push_back(&enter(place, name));
  }
  std::erase_if(all_, [this](auto& entry) {
    Extent& extent = *entry.second;
    if (extent.in_plan) return false;
    for (std::uint32_t i = 0; i < extent.chunks; ++i) free_slot(extent, i);
    return true;
  });
  return ok();
}

SnapshotMemory::Extent& SnapshotMemory::enter(const MemoryPlace& place, const std::string& name) {
  std::unique_ptr<Extent>& extent = all_[place];
  if (!extent) {
    extent = std::make_unique<Extent>();
    extent->place = place;
    extent->chunks =
        static_cast<std::uint32_t>((place.bytes + options_.chunk_bytes - 1) / options_.chunk_bytes);
    const auto known = last_.extents.find(place);
    if (known != last_.extents.end()) extent->known = &known->second;
    extent->scanned.resize(extent->chunks);
    extent->staged.resize(extent->chunks);
    extent->slots.assign(extent->chunks, kNoSlot);
  }
  extent->name = name;
  extent->in_plan = true;
  return *extent;
}

// Uses mapped regions, so the caller must hold source_.hold().
Result<void> SnapshotMemory::find_ranges(std::span<const Chunk> piece) {
  ranges_.clear();
  const Extent* extent = nullptr;
  std::optional<FoundRegion> found;  // region of the extent
  for (const Chunk& chunk : piece) {
    if (chunk.extent != extent) found = source_.find(chunk.extent->place.region);
    extent = chunk.extent;
    if (!found || found->generation != chunk.extent->place.generation)
      return Error(ErrorCode::kAborted,
                   "Tensor \"" + chunk.extent->name + "\" was freed while it was copied");
    ranges_.push_back(
        {found->address + chunk.extent->place.offset + chunk.index * options_.chunk_bytes, bytes_of(chunk)});
  }
  fingerprints_.resize(ranges_.size());
  return ok();
}

Result<void> SnapshotMemory::run_piece(std::span<const Chunk> piece, bool final) {
  if (cancelled_.load()) return Error(ErrorCode::kAborted, "The snapshot was canceled");
  const auto held = source_.hold();
  CKPT_TRYV(find_ranges(piece));
  const Nanos began = now_ns();
  CKPT_TRYV(final ? last_.scan->scan(ranges_, fingerprints_)
                  : last_.scan->narrow().scan(ranges_, fingerprints_));
  const Nanos scanned = now_ns();
  scan_ns_ += scanned - began;
  std::vector<Chunk> wanted;
  for (std::size_t i = 0; i < piece.size(); ++i) {
    Extent& extent = *piece[i].extent;
    const std::uint32_t index = piece[i].index;
    const track::Fingerprint& now = extent.scanned[index] = fingerprints_[i];
    if (extent.known != nullptr && extent.known->fingerprints[index] == now) {
      free_slot(extent, index);
      continue;
    }
    dirty_bytes_ += bytes_of(piece[i]);
    if (is_zero(piece[i])) {
      free_slot(extent, index);
      extent.slots[index] = kZeroSlot;
      extent.staged[index] = now;
      continue;
    }
    if (has_memory(extent.slots[index]) && extent.staged[index] == now) continue;
    wanted.push_back(piece[i]);
  }
  if (!full_ || final) {
    CKPT_TRYV(stage(wanted, final));
  }
  if (final) waiting_.insert(waiting_.end(), wanted.begin(), wanted.end());
  copy_ns_ += now_ns() - scanned;
  return ok();
}

Result<void> SnapshotMemory::stage(std::vector<Chunk>& chunks, bool final) {
  std::vector<Chunk> placed;
  std::vector<Chunk> left;
  for (const Chunk& chunk : chunks) {
    std::uint32_t& slot = chunk.extent->slots[chunk.index];
    if (!has_memory(slot)) {
      const auto allocated = arena_.allocate();
      slot = allocated.value_or(kNoSlot);
      full_ = !allocated;
    }
    (has_memory(slot) ? placed : left).push_back(chunk);
  }
  CKPT_TRYV(copy(placed));
  for (const Chunk& chunk : placed) {
    staged_bytes_ += bytes_of(chunk);
    // The bytes do not change at the barrier, so check() compares them after the job runs again.
    chunk.extent->staged[chunk.index] =
        final ? chunk.extent->scanned[chunk.index] : track::fingerprint(*last_.params, bytes(chunk));
  }
  chunks = std::move(left);
  return ok();
}

// Uses mapped regions, so the caller must hold source_.hold().
Result<void> SnapshotMemory::copy(std::span<const Chunk> chunks) {
  const ContextScope scope(device_);
  for (std::size_t from = 0; from < chunks.size();) {
    const Extent& extent = *chunks[from].extent;
    std::uint64_t bytes = bytes_of(chunks[from]);
    std::size_t to = from + 1;
    while (to < chunks.size() && chunks[to].extent == &extent &&
           chunks[to].index == chunks[to - 1].index + 1 &&
           arena_.adjoin(extent.slots[chunks[to - 1].index], extent.slots[chunks[to].index])) {
      bytes += bytes_of(chunks[to++]);
    }
    const auto found = source_.find(extent.place.region);
    if (!found)
      return Error(ErrorCode::kAborted, "Tensor \"" + extent.name + "\" was freed while it was copied");
    const CUdeviceptr address =
        found->address + extent.place.offset + chunks[from].index * options_.chunk_bytes;
    CKPT_CUDA_TRY(device_.api(), cuMemcpyDtoHAsync_v2(arena_.memory(extent.slots[chunks[from].index]),
                                                      address, bytes, stream_));
    from = to;
  }
  CKPT_CUDA_TRY(device_.api(), cuStreamSynchronize(stream_));
  return ok();
}

Result<std::vector<SnapshotMemory::Chunk>> SnapshotMemory::stage_waiting() {
  if (cancelled_.load()) return Error(ErrorCode::kAborted, "The snapshot was canceled");
  arena_.clear();
  for (Extent* extent : order_) extent->slots.assign(extent->chunks, kNoSlot);
  const auto held = source_.hold();
  std::vector<Chunk> now = waiting_;
  CKPT_TRYV(stage(now, true));
  // The staged chunks are at the front of the list.
  const auto placed = static_cast<std::ptrdiff_t>(waiting_.size() - now.size());
  if (placed == 0) return Error(ErrorCode::kOutOfMemory, "The mover has no memory for staging a snapshot");
  std::vector<Chunk> staged(waiting_.begin(), waiting_.begin() + placed);
  waiting_ = std::move(now);
  return staged;
}

std::vector<SnapshotMemory::Chunk> SnapshotMemory::staged() const {
  std::vector<Chunk> all;
  for (Extent* extent : order_)
    for (std::uint32_t i = 0; i < extent->chunks; ++i)
      if (extent->slots[i] != kNoSlot) all.push_back({extent, i});
  return all;
}

std::span<const std::byte> SnapshotMemory::bytes(const Chunk& chunk) const {
  const std::uint32_t slot = chunk.extent->slots[chunk.index];
  const std::byte* memory = has_memory(slot) ? arena_.memory(slot) : zeroes_.data();
  return {memory, bytes_of(chunk)};
}

Result<void> SnapshotMemory::check(const Chunk& chunk) const {
  if (!has_memory(chunk.extent->slots[chunk.index])) return ok();
  if (track::fingerprint(*last_.params, bytes(chunk)) == chunk.extent->scanned[chunk.index]) return ok();
  return Error(ErrorCode::kCorrupt,
               "Chunk " + std::to_string(chunk.index) + " of tensor \"" + chunk.extent->name +
                   "\" was copied incorrectly: its fingerprint differs from the fingerprint of the memory");
}

std::uint64_t SnapshotMemory::state_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const Extent* extent : order_) bytes += extent->place.bytes;
  return bytes;
}

std::uint64_t SnapshotMemory::waiting_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const Chunk& chunk : waiting_) bytes += bytes_of(chunk);
  return bytes;
}

std::uint64_t SnapshotMemory::bytes_of(const Chunk& chunk) const noexcept {
  return std::min(options_.chunk_bytes, chunk.extent->place.bytes - chunk.index * options_.chunk_bytes);
}

bool SnapshotMemory::is_zero(const Chunk& chunk) const noexcept {
  const track::Fingerprint& now = chunk.extent->scanned[chunk.index];
  const std::uint64_t bytes = bytes_of(chunk);
  return now == (bytes == options_.chunk_bytes ? zero_ : track::fingerprint_of_zeroes(*last_.params, bytes));
}

void SnapshotMemory::free_slot(Extent& extent, std::uint32_t chunk) {
  if (has_memory(extent.slots[chunk])) arena_.give_back(extent.slots[chunk]);
  extent.slots[chunk] = kNoSlot;
}

}  // namespace ckpt::mover
