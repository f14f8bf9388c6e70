// SPDX-License-Identifier: Apache-2.0
// A source's counts and measurements of its move, for its log and for the agent's report. The bound of the
// pause rests on these rates.
//
// Threads: the session's only.
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
  // Measures several times; the measurement with the shortest round trip counts.
  void measure_clock(engine::Sender& sender);
  // Measures how fast memory is read, by a plain read of some of `ranges`. Scans are compared with it. A move
  // does not fail if this fails, except for kDevice: the context is lost.
  Result<void> measure_memory(const Device& device, std::shared_ptr<const track::FingerprintParams> params,
                              std::vector<track::ChunkRange> ranges);

  void count_round(const engine::RoundReport&
                       report);  // a cut round, too: the final round finds bytes that it has not sent
  // Counts the final round. `host_bytes` of host state were sent in it, `host_ahead_bytes` before it.
  void count_final(const engine::RoundReport& report, std::uint64_t host_bytes,
                   std::uint64_t host_ahead_bytes);

  [[nodiscard]] std::uint32_t rounds() const noexcept { return rounds_; }  // without those that were cut
  [[nodiscard]] Nanos last_round_time() const noexcept { return last_round_time_; }
  [[nodiscard]] std::uint64_t link_rate() const noexcept { return link_rate_; }
  // Returns when the target had verified, by this node's clock.
  [[nodiscard]] Nanos verified_ns(const engine::Verdict& verdict) const;
  [[nodiscard]] wire::mover::SourceCounters counters(const engine::RoundProgress& progress,
                                                     Nanos estimate) const;

 private:
  void count(const engine::RoundReport& report);

  std::uint32_t rounds_ = 0;
  Nanos last_round_time_ = 0;
  std::uint64_t state_bytes_ = 0;
  std::uint64_t dirty_bytes_ = 0;  // after the first round
  std::uint64_t host_bytes_ = 0;
  std::uint64_t host_ahead_bytes_ = 0;
  std::uint64_t link_rate_ = 0;
  std::uint64_t scan_rate_ = 0;  // a plain read, or the fastest scan
  engine::ClockOffset clock_;
  bool has_clock_ = false;
  engine::RoundReport final_;
};

}  // namespace ckpt::mover
