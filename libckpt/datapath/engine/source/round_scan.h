// SPDX-License-Identifier: Apache-2.0
// The scan that finds the chunks of a round that the target does not have, and passes them to the lanes. A
// round before the final one scans in pieces, between which regions may be dropped. The final round's scan is
// final_scan.h. Internal to the engine.
//
// Threads: the sender's caller only, except found_bytes(). Ownership: core and lanes outlive it; a region is
// entered (sender_core.h) while it is scanned. Errors: the session's first error, the driver's. A round that
// is cut short (SenderCore::cut) is not an error.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "libckpt/datapath/engine/source/final_scan.h"
#include "libckpt/datapath/engine/source/lane_dispatch.h"
#include "libckpt/datapath/engine/source/sender_core.h"

namespace ckpt::engine {

class RoundScan {
 public:
  // The options of a scan. See SenderOptions.
  struct Options {
    double duty = 1.0;
    std::uint64_t piece_bytes = 0;
    std::uint64_t slice_bytes = 0;
    std::uint64_t min_unscanned_chunks = 0;
  };
  struct Sample {
    std::uint64_t dirty_bytes = 0;
    Nanos scan_ns = 0;  // the estimated time to scan all of the state
  };

  static Result<std::unique_ptr<RoundScan>> create(SenderCore& core, LaneDispatch& lanes,
                                                   const Options& options);

  void begin_round();
  Result<void> run(std::span<SourceRegion* const> regions);
  Result<void> run_final(std::span<SourceRegion* const> regions);
  // Scans a few chunks of the state, and sends nothing. Returns nullopt if the state is too small.
  Result<std::optional<Sample>> sample(std::span<SourceRegion* const> regions);

  // Returns the results of the round so far: dirty bytes, and the scan's own time.
  [[nodiscard]] std::uint64_t found_bytes() const noexcept { return found_bytes_.load(); }
  [[nodiscard]] Nanos scan_time() const noexcept { return scan_time_; }

 private:
  struct Span {  // a run of one region's chunks in the current piece
    SourceRegion* region = nullptr;
    std::uint32_t first = 0;
    std::uint32_t count = 0;
    std::size_t at = 0;  // the index in ranges_
  };
  RoundScan(SenderCore& core, LaneDispatch& lanes, const Options& options)
      : core_(core), lanes_(lanes), options_(options) {}
  // Returns whether regions that no round has scanned yet may be sent without a scan.
  [[nodiscard]] bool may_leave_out_scan(std::span<SourceRegion* const> regions) const;
  Result<void> send_unscanned(SourceRegion* region);
  // Returns the limit of the next piece, from the dirty bytes and the time of a piece of `bytes`.
  [[nodiscard]] std::uint64_t next_piece_limit(std::uint64_t limit, std::uint64_t bytes, std::uint64_t found,
                                               Nanos took) const noexcept;
  void choose_samples(std::span<SourceRegion* const> regions, std::uint64_t chunks);
  Result<void> scan_piece();
  void drop_left_regions();
  Result<void> on_slice(std::size_t first, std::span<const track::Fingerprint> fingerprints);
  Result<void> enqueue_dirty(SourceRegion* region, std::span<const track::Fingerprint> fingerprints,
                             std::uint32_t first);

  SenderCore& core_;
  LaneDispatch& lanes_;
  const Options options_;
  std::unique_ptr<track::Scanner> scanner_;  // scans all rounds except the final one
  std::unique_ptr<FinalScan> final_scan_;
  std::vector<track::ChunkRange> ranges_;  // the ranges of the piece that is being scanned
  std::vector<Span> spans_;                // the same ranges, grouped by region
  std::vector<std::uint32_t> dirty_;
  std::atomic<std::uint64_t> found_bytes_{0};
  Nanos scan_time_ = 0;
};

}  // namespace ckpt::engine
