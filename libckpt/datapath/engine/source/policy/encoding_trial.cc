// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/source/policy/encoding_trial.h"

#include <algorithm>

namespace ckpt::engine {
namespace {

constexpr double kBeatsLink =
    1.02;  // encoding that exceeds the link's rate by this factor needs no comparison

}  // namespace

void EncodingTrial::observe(std::uint64_t plain_bytes, Nanos time, std::uint64_t link_rate) noexcept {
  if (plain_bytes == 0 || time <= 0) return;
  if (lag_ > 0) {
    lag_ -= std::min(lag_, plain_bytes);
    return;
  }
  bytes_ += plain_bytes;
  time_ += time;
  if (bytes_ >= kWindowBytes) end_window(link_rate);
}

void EncodingTrial::end_window(std::uint64_t link_rate) noexcept {
  const bool now = on();
  const double rate = static_cast<double>(bytes_) * 1e9 / static_cast<double>(time_);
  rate_[now ? 1 : 0] = rate;
  bytes_ = 0;
  time_ = 0;
  ++windows_;
  if (now && rate > kBeatsLink * static_cast<double>(link_rate) && link_rate != 0) return;
  const double other = rate_[now ? 0 : 1];
  if (other == 0 || other > rate || windows_ >= kRetryWindows) turn(!now);
}

void EncodingTrial::turn(bool on) noexcept {
  on_.store(on, std::memory_order_relaxed);
  lag_ = kLagBytes;
  windows_ = 0;
}

}  // namespace ckpt::engine
