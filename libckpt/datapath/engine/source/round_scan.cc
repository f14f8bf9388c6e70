// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/source/round_scan.h"

#include <algorithm>

#include "libckpt/base/check.h"

namespace ckpt::engine {
namespace {

constexpr std::size_t kPieceChunks = 16384;
// The parameters of a sample. It has one chunk in kSampleStride, but at most kMaxSamples, and gives no result
// below kMinSamples. With n clean samples, up to 3/n of the state's chunks may still be dirty (with 95 %
// confidence).
constexpr std::uint64_t kSampleStride = 16;
constexpr std::uint64_t kMaxSamples = 4096;
constexpr std::uint64_t kMinSamples = 64;
constexpr std::uint64_t kUnseen = 3;
// The sizes of a scan's pieces. Pieces are short at first, so that copying starts at once. They stay short
// where much is dirty, because recently scanned data is copied from a cache. Elsewhere they grow: a piece has
// a fixed cost, but its dirty chunks wait until the whole piece is scanned.
constexpr std::uint64_t kShortPieceBytes = std::uint64_t{8} << 20;
constexpr std::uint64_t kPieceGrowth = 2;
constexpr Nanos kLongPieceTime = 5'000'000;
constexpr std::uint64_t kMuchDirty = 4;  // a piece has much dirty data if more than one in this many of its
                                         // bytes is dirty

// Scatters values over a region, without a period that a job's writes may share.
std::uint64_t scramble(std::uint64_t value) {
  value = (value ^ value >> 33) * 0xff51afd7ed558ccdU;
  value = (value ^ value >> 33) * 0xc4ceb9fe1a85ec53U;
  return value ^ value >> 33;
}

}  // namespace

Result<std::unique_ptr<RoundScan>> RoundScan::create(SenderCore& core, LaneDispatch& lanes,
                                                     const Options& options) {
  std::unique_ptr<RoundScan> scan(new RoundScan(core, lanes, options));
  track::ScannerOptions scanning;
  scanning.slice_bytes = options.slice_bytes;
  CKPT_TRY(scanner, track::Scanner::create(core.kernels, scanning));
  scan->scanner_ = std::move(scanner);
  CKPT_TRY(final_scan, FinalScan::create(core.kernels, core.chunk_bytes, options.slice_bytes));
  scan->final_scan_ = std::move(final_scan);
  scan->ranges_.reserve(kPieceChunks);
  return scan;
}

void RoundScan::begin_round() {
  found_bytes_.store(0);
  scan_time_ = 0;
  scanner_->set_duty(options_.duty);
}

void RoundScan::choose_samples(std::span<SourceRegion* const> regions, std::uint64_t chunks) {
  const std::uint64_t stride = std::max(kSampleStride, chunks / kMaxSamples);
  ranges_.clear();
  spans_.clear();
  for (SourceRegion* region : regions)
    for (std::uint32_t chunk = 0; chunk < region->chunks() && ranges_.size() < kPieceChunks; ++chunk) {
      if (scramble(region->get().id << 32 ^ chunk) % stride != 0 || !region->enter()) continue;
      spans_.push_back({region, chunk, 1, ranges_.size()});
      ranges_.push_back({region->get().address + chunk * core_.chunk_bytes,
                         chunk_length(region->get().bytes, core_.chunk_bytes, chunk)});
    }
}

Result<std::optional<RoundScan::Sample>> RoundScan::sample(std::span<SourceRegion* const> regions) {
  std::uint64_t chunks = 0;
  std::uint64_t bytes = 0;
  for (const SourceRegion* region : regions) {
    chunks += region->chunks();
    bytes += region->get().bytes;
  }
  choose_samples(regions, chunks);
  CKPT_CHECK(spans_.size() == ranges_.size(), "each sample has its place");
  const std::uint64_t samples = ranges_.size();
  dirty_.clear();
  const Nanos begin = now_ns();
  Result<void> scanned = ok();
  if (samples >= kMinSamples)
    scanned = scanner_->scan(
        ranges_, [this](std::size_t first, std::span<const track::Fingerprint> found) -> Result<void> {
          for (std::size_t i = 0; i < found.size(); ++i) {
            const Span& span = spans_[first + i];
            CKPT_TRYV(core_.diff(*span.region, found.subspan(i, 1), span.first, dirty_));
          }
          return ok();
        });
  for (const Span& span : spans_) span.region->leave();
  ranges_.clear();
  spans_.clear();
  CKPT_TRYV(std::move(scanned));
  if (samples < kMinSamples) return std::optional<Sample>();
  const auto share = static_cast<double>(dirty_.size() + kUnseen) / static_cast<double>(samples);
  Sample sample;
  sample.dirty_bytes = static_cast<std::uint64_t>(static_cast<double>(bytes) * std::min(share, 1.0));
  sample.scan_ns = static_cast<Nanos>(static_cast<double>(now_ns() - begin) * static_cast<double>(chunks) /
                                      static_cast<double>(samples));
  return std::optional(sample);
}

// Scans in pieces, between which regions may be dropped.
Result<void> RoundScan::run(std::span<SourceRegion* const> regions) {
  std::uint64_t piece_bytes = 0;
  std::uint64_t limit = std::min(kShortPieceBytes, options_.piece_bytes);
  const bool leave_out_scan = may_leave_out_scan(regions);
  ranges_.clear();
  spans_.clear();
  for (SourceRegion* region : regions) {
    const bool unseen = region->unseen();
    region->seen();
    if (unseen && leave_out_scan) {
      CKPT_TRYV(send_unscanned(region));
      continue;
    }
    for (std::uint32_t chunk = 0; chunk < region->chunks(); ++chunk) {
      if (spans_.empty() || spans_.back().region != region)
        spans_.push_back({region, chunk, 0, ranges_.size()});
      const std::uint64_t bytes = chunk_length(region->get().bytes, core_.chunk_bytes, chunk);
      ranges_.push_back({region->get().address + chunk * core_.chunk_bytes, bytes});
      ++spans_.back().count;
      piece_bytes += bytes;
      if (piece_bytes < limit && ranges_.size() < kPieceChunks) continue;
      const std::uint64_t found = found_bytes_.load(std::memory_order_relaxed);
      const Nanos scanned = scan_time_;
      CKPT_TRYV(scan_piece());
      limit = next_piece_limit(limit, piece_bytes, found_bytes_.load(std::memory_order_relaxed) - found,
                               scan_time_ - scanned);
      piece_bytes = 0;
    }
  }
  return spans_.empty() ? ok() : scan_piece();
}

std::uint64_t RoundScan::next_piece_limit(std::uint64_t limit, std::uint64_t bytes, std::uint64_t found,
                                          Nanos took) const noexcept {
  if (found > bytes / kMuchDirty)
    limit = kShortPieceBytes;
  else if (took < kLongPieceTime / static_cast<Nanos>(kPieceGrowth))
    limit *= kPieceGrowth;
  return std::min(limit, options_.piece_bytes);
}

bool RoundScan::may_leave_out_scan(std::span<SourceRegion* const> regions) const {
  std::uint64_t chunks = 0;
  for (const SourceRegion* region : regions) chunks += region->unseen() ? region->chunks() : 0;
  return options_.duty >= 1 && chunks >= options_.min_unscanned_chunks;
}

Result<void> RoundScan::send_unscanned(SourceRegion* region) {
  for (std::uint32_t chunk = 0; chunk < region->chunks(); ++chunk) {
    if (core_.cut.load(std::memory_order_relaxed) || region->dropped()) break;
    DirtyChunk dirty;
    dirty.region = region;
    dirty.chunk = chunk;
    found_bytes_.fetch_add(chunk_length(region->get().bytes, core_.chunk_bytes, chunk),
                           std::memory_order_relaxed);
    CKPT_TRYV(lanes_.push(dirty));
  }
  lanes_.wake();
  if (auto error = core_.error()) return *error;
  return ok();
}

Result<void> RoundScan::run_final(std::span<SourceRegion* const> regions) {
  auto scanned = final_scan_->run(
      regions, [this] { return core_.outstanding() == 0; },
      [this](std::span<const ChunkRun> runs,
             std::span<const track::Fingerprint> fingerprints) -> Result<bool> {
        const Nanos held_up = lanes_.held_up_time();
        if (core_.failed()) return Error(ErrorCode::kAborted, "The scan was stopped early");
        for (const ChunkRun& run : runs) {
          CKPT_CHECK(run.count <= fingerprints.size(), "ENG-2: a run of chunks lies within its slice");
          CKPT_TRYV(enqueue_dirty(run.region, fingerprints.first(run.count), run.first));
          fingerprints = fingerprints.subspan(run.count);
        }
        lanes_.wake();
        return lanes_.held_up_time() != held_up;
      });
  if (auto error = core_.error()) return *error;
  CKPT_TRY(time, std::move(scanned));
  scan_time_ = time;
  return ok();
}

// Removes from the piece the regions that were dropped in the meantime. The other regions are held until the
// piece has been scanned.
void RoundScan::drop_left_regions() {
  std::erase_if(spans_, [&](Span& span) { return !span.region->enter(); });
  std::size_t retained = 0;
  for (Span& span : spans_) {
    std::copy_n(ranges_.begin() + static_cast<std::ptrdiff_t>(span.at), span.count,
                ranges_.begin() + static_cast<std::ptrdiff_t>(retained));
    span.at = retained;
    retained += span.count;
  }
  CKPT_CHECK(retained <= ranges_.size(), "ENG-2: the rest of a piece lies within the piece");
  ranges_.resize(retained);
}

Result<void> RoundScan::scan_piece() {
  drop_left_regions();
  Result<void> result = ok();
  const Nanos begin = now_ns();
  const Nanos held_up = lanes_.held_up_time();
  if (!ranges_.empty() && !core_.cut.load())
    result =
        scanner_->scan(ranges_, [this](std::size_t first, std::span<const track::Fingerprint> fingerprints) {
          return on_slice(first, fingerprints);
        });
  scan_time_ += now_ns() - begin - (lanes_.held_up_time() - held_up);
  for (const Span& span : spans_) span.region->leave();
  ranges_.clear();
  spans_.clear();
  if (auto error = core_.error()) return *error;
  if (!result && core_.cut.load()) return ok();
  return result;
}

Result<void> RoundScan::on_slice(std::size_t first, std::span<const track::Fingerprint> fingerprints) {
  if (core_.failed() || core_.cut.load()) return Error(ErrorCode::kAborted, "The scan was stopped early");
  const std::size_t end = first + fingerprints.size();
  CKPT_CHECK(end <= ranges_.size(), "ENG-2: a slice lies within its piece");
  for (const Span& span : spans_) {
    const std::size_t from = std::max(first, span.at);
    const std::size_t to = std::min(end, span.at + span.count);
    if (from >= to) continue;
    const auto chunk = static_cast<std::uint32_t>(span.first + (from - span.at));
    CKPT_TRYV(enqueue_dirty(span.region, fingerprints.subspan(from - first, to - from), chunk));
  }
  lanes_.wake();
  return ok();
}

Result<void> RoundScan::enqueue_dirty(SourceRegion* region, std::span<const track::Fingerprint> fingerprints,
                                      std::uint32_t first) {
  dirty_.clear();
  CKPT_TRYV(core_.diff(*region, fingerprints, first, dirty_));
  const std::uint64_t bytes = region->get().bytes;
  for (const std::uint32_t chunk : dirty_) {
    DirtyChunk dirty;
    dirty.region = region;
    dirty.chunk = chunk;
    dirty.scanned = fingerprints[chunk - first];
    const std::uint64_t length = chunk_length(bytes, core_.chunk_bytes, chunk);
    dirty.zero = dirty.scanned == (length == core_.chunk_bytes
                                       ? core_.zero_chunk
                                       : track::fingerprint_of_zeroes(core_.kernels->params(), length));
    found_bytes_.fetch_add(length, std::memory_order_relaxed);
    CKPT_TRYV(lanes_.push(dirty));
  }
  return ok();
}

}  // namespace ckpt::engine
