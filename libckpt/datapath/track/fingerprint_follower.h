// SPDX-License-Identifier: Apache-2.0
// The fingerprint of memory that fills from its front, computed by a thread of its own meanwhile. So it is ready
// soon after the last byte, however much there is.
// Threads: grew() from any, the rest belongs to one owner. Ownership: `keep` holds the memory; the thread reads
// what is filled until finish() or the end of the follower. Errors: kOutOfMemory, no thread can be started.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "libckpt/base/result.h"
#include "libckpt/datapath/track/fingerprint_stream.h"

namespace ckpt::track {

class FingerprintFollower {
 public:
  static Result<std::unique_ptr<FingerprintFollower>> create(std::shared_ptr<const FingerprintParams> params,
                                                             std::span<const std::byte> memory,
                                                             std::shared_ptr<const void> keep);
  ~FingerprintFollower();
  FingerprintFollower(const FingerprintFollower&) = delete;
  FingerprintFollower& operator=(const FingerprintFollower&) = delete;

  // `filled` never shrinks, and is at most the memory's length.
  void grew(std::uint64_t filled);
  // Waits for the fingerprint of the first `bytes`, which are all, and returns it. Called once.
  [[nodiscard]] Fingerprint finish(std::uint64_t bytes);

 private:
  FingerprintFollower(std::shared_ptr<const FingerprintParams> params, std::span<const std::byte> memory,
                      std::shared_ptr<const void> keep)
      : stream_(std::move(params)), memory_(memory), keep_(std::move(keep)) {}
  void compute();

  FingerprintStream stream_;  // of the thread until it is over
  std::span<const std::byte> memory_;
  std::shared_ptr<const void> keep_;

  std::mutex mutex_;  // the three below
  std::condition_variable changed_;
  std::uint64_t filled_ = 0;
  bool is_whole_ = false;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace ckpt::track
