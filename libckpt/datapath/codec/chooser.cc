// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/codec/chooser.h"

#include <algorithm>

namespace ckpt::codec {
namespace {

constexpr double kMinGain = 1.03;
// The assumed speed of an untried encoding, relative to the fastest known one.
constexpr double kSpread = 4;
// The inverse weight of a new observation: a single preempted thread must not decide.
constexpr std::int64_t kMemory = 8;

constexpr std::array kLearnt = {Encoding::kPlanes2, Encoding::kPlanes4, Encoding::kDifference2,
                                Encoding::kDifference4};

}  // namespace

void Chooser::observe(Encoding encoding, std::uint64_t plain_bytes, Nanos busy) noexcept {
  if (std::find(kLearnt.begin(), kLearnt.end(), encoding) == kLearnt.end()) return;
  if (plain_bytes == 0 || busy <= 0) return;
  const auto seen = static_cast<std::int64_t>(
      std::min(1e15, static_cast<double>(plain_bytes) * 1e9 / static_cast<double>(busy)));
  // Two concurrent threads may lose one of the observations, but more observations follow.
  auto& rate = rate_[static_cast<std::size_t>(encoding)];
  const auto old = static_cast<std::int64_t>(rate.load(std::memory_order_relaxed));
  const std::int64_t now = old == 0 ? seen : old + (seen - old) / kMemory;
  rate.store(static_cast<std::uint64_t>(std::max<std::int64_t>(1, now)), std::memory_order_relaxed);
}

double Chooser::gain(double rate, double ratio) const noexcept {
  const auto link = static_cast<double>(link_rate_.load(std::memory_order_relaxed));
  return link == 0 ? 0 : std::min(rate * threads_ / link, ratio);
}

bool Chooser::consume(std::atomic<std::int32_t>& credits) noexcept {
  if (credits.load(std::memory_order_relaxed) <= 0) return false;
  return credits.fetch_sub(1, std::memory_order_relaxed) > 0;
}

bool Chooser::one_may_pay() const noexcept {
  std::uint64_t fastest = 0;
  for (const Encoding encoding : kLearnt) fastest = std::max(fastest, rate(encoding));
  if (fastest == 0) return trials_left_.load(std::memory_order_relaxed) > 0;
  for (const Encoding encoding : kLearnt) {
    const auto known = static_cast<double>(rate(encoding));
    const double hoped = known != 0 ? known : kSpread * static_cast<double>(fastest);
    if (gain(hoped, kMinGain) >= kMinGain) return true;
  }
  return false;
}

bool Chooser::may_encode() const noexcept {
  if (mode_ != CodecMode::kAuto) return mode_ == CodecMode::kPlanes || mode_ == CodecMode::kDifference;
  if (link_rate_.load(std::memory_order_relaxed) == 0) return false;
  if (asked_.fetch_add(1, std::memory_order_relaxed) % kRetryEvery == kRetryEvery - 1) {
    samples_left_.store(kTrials, std::memory_order_relaxed);
    trials_left_.store(kTrials, std::memory_order_relaxed);
  }
  return one_may_pay() || consume(samples_left_);
}

Encoding Chooser::choose_by_gain(const Estimate& estimate) const noexcept {
  Encoding best = Encoding::kRaw;
  Encoding doubtful = Encoding::kRaw;
  double best_gain = kMinGain;
  double doubtful_gain = kMinGain;
  const auto consider = [&](Encoding encoding, double ratio) {
    if (encoding == Encoding::kRaw || ratio < kMinGain) return;
    const double expected = gain(static_cast<double>(rate(encoding)), ratio);
    if (expected >= best_gain) {
      best = encoding;
      best_gain = expected;
    } else if (expected < kMinGain && ratio >= doubtful_gain) {
      doubtful = encoding;
      doubtful_gain = ratio;
    }
  };
  consider(estimate.planes, estimate.planes_ratio);
  consider(estimate.difference, estimate.difference_ratio);
  // Only an encoding that could win is worth a trial.
  if (doubtful != Encoding::kRaw && doubtful_gain > best_gain && consume(trials_left_)) return doubtful;
  return best;
}

Encoding Chooser::choose(const Estimate& estimate) const noexcept {
  switch (mode_) {
    case CodecMode::kAuto:
      return link_rate_.load(std::memory_order_relaxed) == 0 ? Encoding::kRaw : choose_by_gain(estimate);
    case CodecMode::kPlanes:
      return estimate.planes;
    case CodecMode::kDifference:
      return estimate.difference != Encoding::kRaw ? estimate.difference : estimate.planes;
    case CodecMode::kInvalid:
    case CodecMode::kRaw:
      break;
  }
  return Encoding::kRaw;
}

}  // namespace ckpt::codec
