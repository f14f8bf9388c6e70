// SPDX-License-Identifier: Apache-2.0
// The scan of the final round. The job is paused, so every gap is downtime. One slice waits behind the slice
// that is being read. Meanwhile lists are made and results are compared. While nothing is being sent to the
// target, slices of a second stream are read concurrently. That hides the ends of launches and uses the
// device's spare bandwidth. While chunks are copied and sent, only one stream is used, because two streams
// would only be slower. A slice is sized to take about a millisecond at the earlier slices' rate, because its
// dirty chunks wait until it is done. Internal to the engine.
//
//   CKPT_TRY(scan, FinalScan::create(kernels, chunk_bytes, max_slice_bytes));
//   CKPT_TRY(scan_time, scan->run(regions, is_alone, on_slice));
//
// Threads: one at a time; run() blocks. Ownership: a region is entered (sender_core.h) while a slice of it is
// in progress. Nothing is allocated per chunk once run() has processed its largest slice. Errors: the
// driver's, on_slice's. Bytes, nanoseconds.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "libckpt/datapath/engine/source/sender_core.h"

namespace ckpt::engine {

// A run of adjacent chunks of one region.
struct ChunkRun {
  SourceRegion* region = nullptr;
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

class FinalScan {
 public:
  // Receives the fingerprints of the runs, in order. Returns true if something other than the scan delayed
  // the handler.
  using SliceHandler =
      std::function<Result<bool>(std::span<const ChunkRun>, std::span<const track::Fingerprint>)>;

  static Result<std::unique_ptr<FinalScan>> create(std::shared_ptr<const track::TrackKernels> kernels,
                                                   std::uint64_t chunk_bytes, std::uint64_t max_slice_bytes);
  ~FinalScan();
  FinalScan(const FinalScan&) = delete;
  FinalScan& operator=(const FinalScan&) = delete;

  // Scans all regions in order, except those that are dropped meanwhile. is_alone returns whether nothing is
  // copied or sent now. The returned time is the scan's own: a time in which the handler was delayed is
  // replaced by the rate of the other slices.
  Result<Nanos> run(std::span<SourceRegion* const> regions, const std::function<bool()>& is_alone,
                    const SliceHandler& on_slice);

 private:
  struct Slice {
    std::unique_ptr<track::FingerprintBatch> batch;
    std::size_t stream = 0;
    std::vector<track::ChunkRange> ranges;
    std::vector<ChunkRun> runs;
    std::uint64_t bytes = 0;
  };
  FinalScan(std::shared_ptr<const track::TrackKernels> kernels, std::uint64_t chunk_bytes,
            std::uint64_t max_slice_bytes)
      : kernels_(std::move(kernels)), chunk_bytes_(chunk_bytes), max_slice_bytes_(max_slice_bytes) {}
  [[nodiscard]] std::uint64_t next_slice_bytes() const noexcept;
  void fill(Slice& slice);
  Result<void> launch(const std::function<bool()>& is_alone);
  void measured(std::uint64_t bytes, Nanos time, bool held_up) noexcept;
  static void leave(Slice& slice) noexcept;
  void drain() noexcept;

  std::shared_ptr<const track::TrackKernels> kernels_;
  const std::uint64_t chunk_bytes_;
  const std::uint64_t max_slice_bytes_;
  struct Stream {
    CUstream stream = nullptr;
    std::size_t slices = 0;  // the number of slices in progress
  };
  std::vector<Stream> streams_;
  std::vector<Slice> slices_;

  // The state of the running scan: the place where the next slice begins.
  std::span<SourceRegion* const> regions_;
  std::size_t region_ = 0;   // the region in which the next slice begins
  std::uint32_t chunk_ = 0;  // the chunk in the region `region_`
  std::uint64_t left_ = 0;   // the bytes that are not in a slice yet
  std::size_t launched_ = 0;
  std::size_t done_ = 0;
  std::uint64_t measured_bytes_ = 0;
  Nanos measured_time_ = 0;
  std::size_t unmeasured_ = 0;  // the number of later slices that ended while the handler was delayed
};

}  // namespace ckpt::engine
