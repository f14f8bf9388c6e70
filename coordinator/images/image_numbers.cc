// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/image_numbers.h"

#include <algorithm>

#include "libckpt/base/clock.h"

namespace ckpt::coordinator {
namespace {

constexpr std::uint64_t kBlock = 256;
// The count of numbers that a restart skips. It exceeds the numbers that are assigned between two syncs of
// the store. So numbers of blocks that a power failure lost are not assigned again.
constexpr std::uint64_t kMayBeLost = 1 << 16;
// The limit of numbers assigned per millisecond, including those skipped by restarts.
constexpr std::uint64_t kPerMillisecond = 1000;

}  // namespace

void ImageNumbers::seen(std::uint64_t number) {
  if (number <= kMaxImageNumber) last_ = std::max(last_, number);
}

Result<std::uint64_t> ImageNumbers::next() {
  if (reserved_ == 0) seen(static_cast<std::uint64_t>(wall_clock_ms()) * kPerMillisecond);
  if (last_ >= reserved_) {
    const std::uint64_t skipped = reserved_ == 0 ? kMayBeLost : 0;
    CKPT_TRY(reserved, store_.reserve_image_numbers(last_, skipped + kBlock));
    reserved_ = reserved;
    last_ = reserved_ - kBlock;
  }
  return ++last_;
}

}  // namespace ckpt::coordinator
