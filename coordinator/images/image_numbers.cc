// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/image_numbers.h"

#include <algorithm>

#include "libckpt/base/clock.h"

namespace ckpt::coordinator {
namespace {

constexpr std::uint64_t kBlock = 256;
// More than are given between two syncs of the store: those of blocks that power took with it are not given
// again.
constexpr std::uint64_t kMayBeLost = 1 << 16;
// Fewer are given in a millisecond, restarts and their skipping counted.
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
