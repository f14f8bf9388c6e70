// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/source/policy/convergence.h"

#include <algorithm>
#include <cmath>

namespace ckpt::engine {
namespace {

constexpr double kShrinks =
    0.9;  // a round that leaves more than this share of the last round's bytes does not shrink
constexpr std::uint32_t kStuckRounds = 2;  // after this many such rounds in a row, no improvement is expected
constexpr std::uint32_t kPatience = 3;     // the number of further rounds to wait for a round as good as the
                                           // best one
constexpr double kAsGoodAsBest = 1.1;

}  // namespace

std::string_view to_string(Advice advice) noexcept {
  switch (advice) {
    case Advice::kContinue:
      return "continue";
    case Advice::kSwitch:
      return "switch";
    case Advice::kSwitchAnyway:
      return "switch-anyway";
    case Advice::kGiveUp:
      return "give-up";
  }
  return "unknown";
}

Nanos Convergence::send_time(std::uint64_t bytes) const noexcept {
  return throughput_ > 0 ? static_cast<Nanos>(static_cast<double>(bytes) * 1e9 / throughput_) : 0;
}

Nanos Convergence::whole(Nanos copy) const noexcept {
  return std::max(copy, options_.beside) + options_.fixed_cost;
}

Advice Convergence::evaluate_stop_copy(std::uint64_t bytes) {
  remaining_ = bytes;
  estimate_ = best_ = whole(send_time(bytes));
  if (*estimate_ <= options_.max_downtime) return Advice::kSwitch;
  return give_up_or_switch();
}

// Handles the first round, in which everything was dirty because nothing had been sent.
Advice Convergence::observe_first(const RoundObservation& round) {
  remaining_ = round.dirty_bytes;
  if (options_.max_rounds <= 1) return give_up_or_switch();
  if (!fits_without_copy() && !options_.switch_anyway) {
    estimate_ = best_ = whole(round.scan_time);
    return Advice::kGiveUp;
  }
  const Nanos hides = std::max(round.scan_time, options_.beside);
  if (!round.sampled_dirty_bytes || send_time(*round.sampled_dirty_bytes) > hides) return Advice::kContinue;
  const Nanos estimate = whole(round.scan_time);
  // A faster scan may still bring the estimate within the limit, unless the other terms are too long for
  // that.
  if (estimate > options_.max_downtime && fits_without_copy()) return Advice::kContinue;
  remaining_ = *round.sampled_dirty_bytes;
  if (round.round_time > 0)
    dirty_rate_ = static_cast<double>(remaining_) * 1e9 / static_cast<double>(round.round_time);
  estimate_ = best_ = estimate;
  return estimate <= options_.max_downtime ? Advice::kSwitch : Advice::kSwitchAnyway;
}

Advice Convergence::observe(const RoundObservation& round) {
  ++rounds_;
  if (round.throughput > 0) throughput_ = round.throughput;
  const std::optional<RoundObservation> before = last_;
  last_ = round;
  if (!before) return observe_first(round);
  // This round's dirty bytes were written while the last round ran. The rate of writing during this round is
  // assumed to be equal.
  const double growth = before->round_time > 0
                            ? static_cast<double>(round.round_time) / static_cast<double>(before->round_time)
                            : 1.0;
  remaining_ = std::min(round.state_bytes,
                        static_cast<std::uint64_t>(
                            std::llround(static_cast<double>(round.dirty_bytes) * std::max(1.0, growth))));
  if (before->round_time > 0)
    dirty_rate_ = static_cast<double>(round.dirty_bytes) * 1e9 / static_cast<double>(before->round_time);
  const Nanos send = send_time(remaining_);
  estimate_ = whole(std::max(round.scan_time, send));
  const bool first_estimate = !best_.has_value();
  best_ = first_estimate ? *estimate_ : std::min(*best_, *estimate_);
  if (*estimate_ <= options_.max_downtime) return Advice::kSwitch;
  if (send <= std::max(round.scan_time, options_.beside) && options_.switch_anyway)
    return Advice::kSwitchAnyway;
  if (!fits_without_copy() && !options_.switch_anyway) return Advice::kGiveUp;

  const bool shrinks =
      static_cast<double>(round.dirty_bytes) < kShrinks * static_cast<double>(before->dirty_bytes);
  stuck_rounds_ = shrinks ? 0 : stuck_rounds_ + 1;
  if (rounds_ >= options_.max_rounds) return give_up_or_switch();
  if (stuck_rounds_ < kStuckRounds) return Advice::kContinue;
  if (!options_.switch_anyway) return Advice::kGiveUp;
  const bool good = static_cast<double>(*estimate_) <= kAsGoodAsBest * static_cast<double>(*best_);
  return good || stuck_rounds_ >= kStuckRounds + kPatience ? Advice::kSwitchAnyway : Advice::kContinue;
}

// Updates the estimate. The bytes written between this round's scan and the barrier's are assumed to equal
// those written before this scan.
void Convergence::refresh(const RoundObservation& round) {
  if (round.throughput > 0) throughput_ = round.throughput;
  remaining_ = round.dirty_bytes;
  estimate_ = whole(std::max(round.scan_time, send_time(remaining_)));
  last_ = round;
}

std::optional<Nanos> Convergence::eta() const noexcept {
  if (!last_ || throughput_ <= 0) return std::nullopt;
  if (estimate_ && *estimate_ <= options_.max_downtime) return 0;
  const double rest = static_cast<double>(remaining_) * 1e9 / throughput_;
  if (dirty_rate_ >= throughput_) return std::nullopt;
  // Rounds form a geometric series whose ratio is the dirtying rate over the sending rate.
  return static_cast<Nanos>(rest / (1.0 - dirty_rate_ / throughput_)) + last_->scan_time;
}

}  // namespace ckpt::engine
