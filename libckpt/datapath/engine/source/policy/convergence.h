// SPDX-License-Identifier: Apache-2.0
// When to switch (docs/design.md §5 "Convergence"). After each round the downtime of a switch now is
// estimated as
//   max(scan, remaining / throughput, beside) + fixed
// where `throughput` is the drain rate while only sending, and `remaining` the dirty bytes that the barrier's
// scan will find. These are estimated as those of this round's scan, grown by the ratio of this round's time
// to the last one's. The estimate is never shrunk: hot data is rewritten whole. The first round finds
// everything dirty and shows nothing of the job's rate. A decision needs two rounds, or max_rounds, or a
// sample at the end of the first. The sample decides if so little has changed that the scan takes the time.
// Where the scan binds, no further round can shorten the downtime. `beside` and `fixed` are all other terms
// of the pause: where they alone are over the limit, no round makes it.
//
// Threads: one owner. A pure object: no clock, no I/O; no function fails. Times are spans in nanoseconds,
// sizes bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "libckpt/base/clock.h"

namespace ckpt::engine {

struct ConvergenceOptions {
  Nanos max_downtime = 200'000'000;
  std::uint32_t max_rounds = 30;
  bool switch_anyway = true;  // --if-not-converged switch; false: abort
  Nanos fixed_cost = 0;       // of the pause beside the copy, as known
  Nanos beside = 0;           // other work that runs beside the last copy
};

struct RoundObservation {
  std::uint64_t state_bytes = 0;
  std::uint64_t dirty_bytes = 0;
  Nanos scan_time = 0;
  Nanos round_time = 0;
  double throughput =
      0;  // bytes before encoding per second while only sending; 0 = this round was too short for a rate
  // After the first round: bytes that have become dirty again, by a sample, rather too many than too few.
  std::optional<std::uint64_t> sampled_dirty_bytes;
};

enum class Advice : std::uint8_t { kContinue, kSwitch, kSwitchAnyway, kGiveUp };
[[nodiscard]] std::string_view to_string(Advice advice) noexcept;

class Convergence {
 public:
  // `link_rate`: the plain stream's, used until a round has measured its own.
  Convergence(const ConvergenceOptions& options, double link_rate)
      : options_(options), throughput_(link_rate) {}

  Advice observe(const RoundObservation& round);
  // A round after the decision, which it does not change: the estimate is that of a switch now. Such rounds keep the
  // target fresh until the barrier, and earlier ones may have shared the link with host memory.
  void refresh(const RoundObservation& round);
  // No round comes: all of `bytes` is copied in the pause.
  Advice judge_stop_copy(std::uint64_t bytes);
  // The downtime if the switch came now; nothing before the second round, or before a sample that decided.
  [[nodiscard]] std::optional<Nanos> estimate() const noexcept { return estimate_; }
  [[nodiscard]] std::uint64_t remaining_bytes() const noexcept { return remaining_; }
  [[nodiscard]] double throughput() const noexcept { return throughput_; }
  [[nodiscard]] double dirty_bytes_per_second() const noexcept { return dirty_rate_; }
  // Until the switch, if rounds go on shrinking as they did; nothing if they do not.
  [[nodiscard]] std::optional<Nanos> eta() const noexcept;

  // The limit leaves time for a copy: at another rate the pause may be within it.
  [[nodiscard]] bool fits_without_copy() const noexcept { return whole(0) <= options_.max_downtime; }

  // While running (`gpumigrate set`).
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
