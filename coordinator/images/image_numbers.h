// SPDX-License-Identifier: Apache-2.0
// The coordinator's own count of images. Each snapshot order has a higher number than all earlier orders, so
// that the newest image is known without a clock. Numbers become durable in blocks, soon after a block is
// begun. A restart skips more numbers than can have been assigned before they were durable. A coordinator
// that lost its store continues from the highest number in the checkpoint stores, or from the current time in
// microseconds. Keepers also remember numbers, which no image may have.
// Threads: one. Ownership: the coordinator's. Errors: the store's.
#pragma once

#include "coordinator/state/store.h"

namespace ckpt::coordinator {

// The highest valid number: JSON preserves integers only up to 2^53. A higher number is a node's mistake.
inline constexpr std::uint64_t kMaxImageNumber = std::uint64_t{1} << 53;

class ImageNumbers {
 public:
  explicit ImageNumbers(Store& store) : store_(store) {}
  // Records that an image has the number. Later numbers are higher.
  void seen(std::uint64_t number);
  Result<std::uint64_t> next();

 private:
  Store& store_;
  std::uint64_t last_ = 0;  // the highest number assigned or seen
  std::uint64_t reserved_ = 0;
};

}  // namespace ckpt::coordinator
