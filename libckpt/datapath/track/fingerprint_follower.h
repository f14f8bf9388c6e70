// SPDX-License-Identifier: Apache-2.0
// The fingerprint of memory that fills from its front, computed concurrently by a separate thread. It is
// ready soon after the last byte, however much memory there is.
// Threads: any thread may call grew(); the rest belongs to one owner. Ownership: `keep` holds the memory; the
// thread reads the filled part until finish() returns or the follower is destroyed. Errors: kOutOfMemory, or
// no thread can be started.
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

  // Reports the filled bytes. `filled` never shrinks, and is at most the memory's length.
  void grew(std::uint64_t filled);
  // Waits for the fingerprint of the first `bytes`, which are all bytes, and returns it. Call it once.
  [[nodiscard]] Fingerprint finish(std::uint64_t bytes);

 private:
  FingerprintFollower(std::shared_ptr<const FingerprintParams> params, std::span<const std::byte> memory,
                      std::shared_ptr<const void> keep)
      : stream_(std::move(params)), memory_(memory), keep_(std::move(keep)) {}
  void compute();

  FingerprintStream stream_;  // the fingerprint so far, which belongs to the thread until the thread has
                              // exited
  std::span<const std::byte> memory_;
  std::shared_ptr<const void> keep_;

  std::mutex mutex_;  // guards the three members below
  std::condition_variable changed_;
  std::uint64_t filled_ = 0;
  bool is_whole_ = false;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace ckpt::track
