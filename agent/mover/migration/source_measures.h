// SPDX-License-Identifier: Apache-2.0
// A source's counts and measurements of its move, for its log and for the agent's report. The bound of the
// pause uses these rates.
//
// Threads: the session's thread only.
#pragma once

#include <memory>
#include <vector>

#include "libckpt/cuda/driver.h"
#include "libckpt/datapath/engine/source/sender.h"
#include "libckpt/datapath/track/fingerprint.h"
#include "libckpt/datapath/track/scanner.h"
#include "libckpt/protocol/wire/mover_move_messages.h"

namespace ckpt::mover {

class SourceMeasures {
 public:
  Result<void> measure_link(engine::Sender& sender);
  // Measures the clock several times. The measurement with the shortest round trip counts.
  void measure_clock(engine::Sender& sender);
  // Measures how fast memory is read, by a plain read of some of `ranges`. Scans are compared with this rate.
  // A failure does not abort the move, except for kDevice, which means that the context is lost.
  Result<void> measure_memory(const Device& device, std::shared_ptr<const track::FingerprintParams> params,
                              std::vector<track::ChunkRange> ranges);

  void count_round(const engine::RoundReport&
                       report);  // also counts an interrupted round, because the final round finds the bytes
                                 // that were not sent
  // Counts the final round. `host_bytes` of host state were sent in that round, and `host_ahead_bytes` before
  // it.
  void count_final(const engine::RoundReport& report, std::uint64_t host_bytes,
                   std::uint64_t host_ahead_bytes);

  // returns the number of rounds without interrupted rounds
  [[nodiscard]] std::uint32_t rounds() const noexcept { return rounds_; }
  [[nodiscard]] Nanos last_round_time() const noexcept { return last_round_time_; }
  [[nodiscard]] std::uint64_t link_rate() const noexcept { return link_rate_; }
  // Returns the time at which the target had verified, by this node's clock.
  [[nodiscard]] Nanos verified_ns(const engine::Verdict& verdict) const;
  [[nodiscard]] wire::mover::SourceCounters counters(const engine::RoundProgress& progress,
                                                     Nanos estimate) const;

 private:
  void count(const engine::RoundReport& report);

  std::uint32_t rounds_ = 0;
  Nanos last_round_time_ = 0;
  std::uint64_t state_bytes_ = 0;
  std::uint64_t dirty_bytes_ = 0;  // bytes that changed after the first round
  std::uint64_t host_bytes_ = 0;
  std::uint64_t host_ahead_bytes_ = 0;
  std::uint64_t link_rate_ = 0;
  std::uint64_t scan_rate_ = 0;  // rate of a plain read, or of the fastest scan
  engine::ClockOffset clock_;
  bool has_clock_ = false;
  engine::RoundReport final_;
};

}  // namespace ckpt::mover
