// SPDX-License-Identifier: Apache-2.0
// Decides when to switch (docs/design.md §5 "Convergence"). After each round the downtime of a handover now
// is estimated as
//   max(scan, remaining / throughput, beside) + fixed
// where `throughput` is the drain rate while only sending, and `remaining` the dirty bytes that the barrier's
// scan will find. The estimate of these bytes is the dirty bytes of this round's scan, multiplied by the
// ratio of this round's time to the last one's. The estimate is never reduced: hot data is rewritten
// completely. The first round finds everything dirty and shows nothing of the job's rate. A decision needs
// two rounds, or max_rounds, or a sample at the end of the first round. The sample decides if so little has
// changed that the scan determines the time. If the scan determines the time, no further round can shorten
// the downtime. `beside` and `fixed` are all other terms of the pause. If these terms alone exceed the limit,
// no round can meet it.
//
// Threads: one owner. A pure object: no clock, no I/O; no function fails. Times are durations in nanoseconds,
// and sizes are bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "libckpt/base/clock.h"

namespace ckpt::engine {

struct ConvergenceOptions {
  Nanos max_downtime = 200'000'000;
  std::uint32_t max_rounds = 30;
  bool switch_anyway = true;  // whether to switch if the copy does not converge (--if-not-converged); false
                              // means abort
  Nanos fixed_cost = 0;       // the duration of the known terms of the pause except the copy
  Nanos beside = 0;           // the duration of other work that runs concurrently with the last copy
};

struct RoundObservation {
  std::uint64_t state_bytes = 0;
  std::uint64_t dirty_bytes = 0;
  Nanos scan_time = 0;
  Nanos round_time = 0;
  double throughput =
      0;  // the bytes before encoding per second while only sending; 0 if this round was too short for a rate
  // After the first round: the bytes that have become dirty again, estimated by a sample. The value is too
  // high rather than too low.
  std::optional<std::uint64_t> sampled_dirty_bytes;
};

enum class Advice : std::uint8_t { kContinue, kSwitch, kSwitchAnyway, kGiveUp };
[[nodiscard]] std::string_view to_string(Advice advice) noexcept;

class Convergence {
 public:
  // Creates a decision with these options. `link_rate` is the rate of a plain stream, which is used until a
  // round has measured its own rate.
  Convergence(const ConvergenceOptions& options, double link_rate)
      : options_(options), throughput_(link_rate) {}

  Advice observe(const RoundObservation& round);
  // Updates the estimate by a round after the decision, which it does not change: the estimate is that of a
  // handover now. Such rounds keep the target up to date until the barrier. Earlier rounds may have shared
  // the link with host memory.
  void refresh(const RoundObservation& round);
  // Evaluates a move without rounds, in which all of `bytes` is copied during the pause.
  Advice evaluate_stop_copy(std::uint64_t bytes);
  // Returns the estimated downtime of a switch now. Returns nullopt before the second round, or before a
  // sample that decided.
  [[nodiscard]] std::optional<Nanos> estimate() const noexcept { return estimate_; }
  [[nodiscard]] std::uint64_t remaining_bytes() const noexcept { return remaining_; }
  [[nodiscard]] double throughput() const noexcept { return throughput_; }
  [[nodiscard]] double dirty_bytes_per_second() const noexcept { return dirty_rate_; }
  // Returns the time until the handover if rounds continue to shrink at the same rate. Returns nullopt if
  // they do not.
  [[nodiscard]] std::optional<Nanos> eta() const noexcept;

  // Returns whether the pause without its copy would be within the limit. If so, a different rate may bring
  // the whole pause within the limit.
  [[nodiscard]] bool fits_without_copy() const noexcept { return whole(0) <= options_.max_downtime; }

  // Sets the limit during a move (`gpumigrate set`).
  void set_max_downtime(Nanos limit) noexcept { options_.max_downtime = limit; }
  [[nodiscard]] const ConvergenceOptions& options() const noexcept { return options_; }

 private:
  [[nodiscard]] Nanos send_time(std::uint64_t bytes) const noexcept;
  [[nodiscard]] Nanos whole(Nanos copy) const noexcept;
  Advice observe_first(const RoundObservation& round);
  [[nodiscard]] Advice give_up_or_switch() const noexcept {
    return options_.switch_anyway ? Advice::kSwitchAnyway : Advice::kGiveUp;
  }

  ConvergenceOptions options_;
  double throughput_;
  double dirty_rate_ = 0;
  std::uint64_t remaining_ = 0;
  std::uint32_t rounds_ = 0;
  std::uint32_t stuck_rounds_ = 0;
  std::optional<RoundObservation> last_;
  std::optional<Nanos> estimate_;
  std::optional<Nanos> best_;
};

}  // namespace ckpt::engine
