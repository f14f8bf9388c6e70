// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/migration/wire_rate.h"

namespace ckpt::mover {
namespace {

constexpr Nanos kWindow = 1'000'000'000;
constexpr Nanos kBetweenSamples = 20'000'000;
constexpr Nanos kMinSpan = 100'000'000;

}  // namespace

std::uint64_t WireRate::observe(std::uint64_t bytes, Nanos now) {
  if (samples_.empty() || now - samples_.back().time >= kBetweenSamples) samples_.push_back({bytes, now});
  while (samples_.size() > 2 && now - samples_[1].time >= kWindow) samples_.pop_front();
  const Sample& first = samples_.front();
  const Nanos span = now - first.time;
  if (span < kMinSpan || bytes < first.bytes) return 0;
  return static_cast<std::uint64_t>(static_cast<double>(bytes - first.bytes) * 1e9 /
                                    static_cast<double>(span));
}

}  // namespace ckpt::mover
