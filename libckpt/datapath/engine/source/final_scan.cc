// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/source/final_scan.h"

#include <algorithm>

#include "libckpt/base/check.h"

namespace ckpt::engine {
namespace {

constexpr std::size_t kStreams = 2;
constexpr std::size_t kSlicesOfAStream = 2;  // one slice is being read, and the next waits for it
constexpr std::uint32_t kSliceChunks = 8192;
constexpr std::uint64_t kFirstSliceBytes = std::uint64_t{8} << 20;
constexpr std::uint64_t kMinSliceBytes = std::uint64_t{4} << 20;
constexpr double kSliceSeconds = 1e-3;
constexpr double kMinSliceSeconds = 1e-4;

}  // namespace

Result<std::unique_ptr<FinalScan>> FinalScan::create(std::shared_ptr<const track::TrackKernels> kernels,
                                                     std::uint64_t chunk_bytes,
                                                     std::uint64_t max_slice_bytes) {
  std::unique_ptr<FinalScan> scan(new FinalScan(std::move(kernels), chunk_bytes, max_slice_bytes));
  const Device& device = scan->kernels_->device();
  const ContextScope scope(device);
  for (std::size_t i = 0; i < kStreams; ++i) {
    scan->streams_.emplace_back();
    CKPT_CUDA_TRY(device.api(), cuStreamCreate(&scan->streams_.back().stream, CU_STREAM_NON_BLOCKING));
  }
  for (std::size_t i = 0; i < kStreams * kSlicesOfAStream; ++i) {
    Slice slice;
    CKPT_TRY(batch, track::FingerprintBatch::create(scan->kernels_, kSliceChunks));
    slice.batch = std::move(batch);
    scan->slices_.push_back(std::move(slice));
  }
  return scan;
}

FinalScan::~FinalScan() {
  drain();
  const ContextScope scope(kernels_->device());
  for (const Stream& stream : streams_)
    if (stream.stream != nullptr) kernels_->device().api().cuStreamDestroy_v2(stream.stream);
}

Result<Nanos> FinalScan::run(std::span<SourceRegion* const> regions, const std::function<bool()>& is_alone,
                             const SliceHandler& on_slice) {
  struct Drain {
    FinalScan& scan;
    ~Drain() { scan.drain(); }
  } drain_at_exit{*this};
  regions_ = regions;
  region_ = launched_ = done_ = unmeasured_ = 0;
  chunk_ = 0;
  left_ = measured_bytes_ = 0;
  measured_time_ = 0;
  for (const SourceRegion* region : regions) left_ += region->get().bytes;
  const std::uint64_t all_bytes = left_;
  const Nanos begin = now_ns();
  Nanos before = begin;
  bool ever_held_up = false;
  for (;;) {
    CKPT_TRYV(launch(is_alone));
    if (launched_ == done_) break;
    Slice& oldest = slices_[done_ % slices_.size()];
    CKPT_TRYV(oldest.batch->wait());
    --streams_[oldest.stream].slices;
    CKPT_CHECK(oldest.batch->results().size() == oldest.ranges.size(),
               "ENG-2: a slice has a fingerprint of each of its chunks");
    const Nanos now = now_ns();
    CKPT_TRY(held_up, on_slice(oldest.runs, oldest.batch->results()));
    measured(oldest.bytes, now - before, held_up);
    before = held_up ? now_ns() : now;
    ever_held_up |= held_up;
    leave(oldest);
    ++done_;
  }
  CKPT_CHECK(region_ == regions.size() && left_ == 0, "ENG-2: the barrier's scan covers all memory");
  const Nanos elapsed = now_ns() - begin;
  if (!ever_held_up || measured_bytes_ == 0) return elapsed;
  return static_cast<Nanos>(static_cast<double>(measured_time_) * static_cast<double>(all_bytes) /
                            static_cast<double>(measured_bytes_));
}

// Records the time of a slice. If the handler was delayed, slices that had been launched before ended at an
// unknown time. These slices are not measured.
void FinalScan::measured(std::uint64_t bytes, Nanos time, bool held_up) noexcept {
  if (unmeasured_ == 0) {
    measured_bytes_ += bytes;
    measured_time_ += time;
  } else {
    --unmeasured_;
  }
  if (held_up) unmeasured_ = launched_ - done_ - 1;
}

// Launches as many slices as may run concurrently.
Result<void> FinalScan::launch(const std::function<bool()>& is_alone) {
  while (left_ > 0) {
    const bool second = is_alone() && streams_[1].slices < streams_[0].slices;
    const std::size_t stream = second ? 1 : 0;
    if (streams_[stream].slices == kSlicesOfAStream) break;
    Slice& slice = slices_[launched_ % slices_.size()];
    fill(slice);
    if (slice.ranges.empty()) break;  // the remaining regions were dropped
    slice.stream = stream;
    ++streams_[stream].slices;
    ++launched_;
    CKPT_TRYV(slice.batch->launch(streams_[stream].stream, slice.ranges));
  }
  return ok();
}

std::uint64_t FinalScan::next_slice_bytes() const noexcept {
  if (measured_time_ == 0) return std::min(kFirstSliceBytes, max_slice_bytes_);
  const double rate = static_cast<double>(measured_bytes_) * 1e9 / static_cast<double>(measured_time_);
  const auto in = [&](double seconds) { return static_cast<std::uint64_t>(rate / kStreams * seconds); };
  // The streams end together, because the last slices are shorter.
  const std::uint64_t least = std::max(kMinSliceBytes, in(kMinSliceSeconds));
  const std::uint64_t share = std::max(least, left_ / (2 * kStreams));
  return std::min({std::max(least, in(kSliceSeconds)), share, max_slice_bytes_});
}

void FinalScan::fill(Slice& slice) {
  const std::uint64_t limit = next_slice_bytes();
  slice.ranges.clear();
  slice.runs.clear();
  slice.bytes = 0;
  while (region_ < regions_.size() && slice.ranges.size() < kSliceChunks && slice.bytes < limit) {
    SourceRegion& region = *regions_[region_];
    const std::uint64_t region_bytes = region.get().bytes;
    if (!region.enter()) {
      left_ -= region_bytes - chunk_ * chunk_bytes_;
      ++region_;
      chunk_ = 0;
      continue;
    }
    ChunkRun run{&region, chunk_, 0};
    while (chunk_ < region.chunks() && slice.ranges.size() < kSliceChunks && slice.bytes < limit) {
      const std::uint64_t bytes = chunk_length(region_bytes, chunk_bytes_, chunk_);
      slice.ranges.push_back({region.get().address + chunk_ * chunk_bytes_, bytes});
      slice.bytes += bytes;
      left_ -= bytes;
      ++run.count;
      ++chunk_;
    }
    slice.runs.push_back(run);
    if (chunk_ == region.chunks()) {
      ++region_;
      chunk_ = 0;
    }
  }
}

void FinalScan::leave(Slice& slice) noexcept {
  for (const ChunkRun& run : slice.runs) run.region->leave();
  slice.runs.clear();
}

// Waits for all slices after an error: no launch may outlive the call.
void FinalScan::drain() noexcept {
  for (Slice& slice : slices_) {
    if (slice.batch->busy()) (void)slice.batch->wait();
    leave(slice);
  }
  for (Stream& stream : streams_) stream.slices = 0;
}

}  // namespace ckpt::engine
