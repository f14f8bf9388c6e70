// SPDX-License-Identifier: Apache-2.0
// Host state that the agent writes while it is sent: a memory file that fills from its beginning. Its
// fingerprint, which the manifest needs, is computed as the file grows.
// Threads: the control loop calls grew(). The session's thread calls the other functions. The follower's
// thread computes the fingerprint. Errors: kInvalidArgument for a file that is shorter than stated or may
// shrink during the read, and for a growth that adds nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"
#include "libckpt/datapath/track/fingerprint_follower.h"

namespace ckpt::mover {

class HostStream {
 public:
  static Result<std::unique_ptr<HostStream>> open(UniqueFd file, std::uint64_t limit, std::uint64_t expected,
                                                  std::shared_ptr<const track::FingerprintParams> params);

  // Returns the whole file. Only its filled part may be read.
  [[nodiscard]] std::span<const std::byte> memory() const noexcept { return memory_; }
  [[nodiscard]] std::uint64_t expected() const noexcept { return expected_; }

  Result<void> grew(std::uint64_t filled, bool is_whole);
  struct Extent {
    std::uint64_t filled = 0;
    bool whole = false;
  };
  [[nodiscard]] Extent extent() const;
  // Returns the fingerprint of the whole host state after waiting for it.
  [[nodiscard]] track::Fingerprint fingerprint();

 private:
  HostStream(std::span<const std::byte> memory, std::shared_ptr<const void> mapping, std::uint64_t expected,
             std::unique_ptr<track::FingerprintFollower> follower)
      : memory_(memory), mapping_(std::move(mapping)), expected_(expected), follower_(std::move(follower)) {}

  std::span<const std::byte> memory_;
  std::shared_ptr<const void> mapping_;
  std::uint64_t expected_;
  mutable std::mutex mutex_;
  Extent extent_;
  std::unique_ptr<track::FingerprintFollower> follower_;
};

}  // namespace ckpt::mover
