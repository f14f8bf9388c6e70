// SPDX-License-Identifier: Apache-2.0
// The coordinator's own count of images. Each order of a snapshot has a higher number than all before it, so
// that the newest image is known without a clock. Durable in blocks, soon after they are begun. A restart
// skips more than can have been given of those that were not durable yet. A coordinator that lost its store
// continues from the highest number in the vaults, or from the time of day. That is in microseconds. Keepers
// remember numbers, too, which no image has.
// Threads: one. Ownership: the coordinator's. Errors: the store's.
#pragma once

#include "coordinator/state/store.h"

namespace ckpt::coordinator {

// More is a node's mistake: 2^53 is what JSON keeps.
inline constexpr std::uint64_t kMaxImageNumber = std::uint64_t{1} << 53;

class ImageNumbers {
 public:
  explicit ImageNumbers(Store& store) : store_(store) {}
  // An image has it.
  void seen(std::uint64_t number);
  Result<std::uint64_t> next();

 private:
  Store& store_;
  std::uint64_t last_ = 0;  // given or seen
  std::uint64_t reserved_ = 0;
};

}  // namespace ckpt::coordinator
