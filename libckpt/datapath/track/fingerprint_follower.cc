// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/track/fingerprint_follower.h"

#include <system_error>

namespace ckpt::track {

Result<std::unique_ptr<FingerprintFollower>> FingerprintFollower::create(
    std::shared_ptr<const FingerprintParams> params, std::span<const std::byte> memory,
    std::shared_ptr<const void> keep) {
  std::unique_ptr<FingerprintFollower> follower(
      new FingerprintFollower(std::move(params), memory, std::move(keep)));
  try {
    follower->thread_ = std::thread([raw = follower.get()] { raw->compute(); });
  } catch (const std::system_error&) {
    return Error(ErrorCode::kOutOfMemory, "No thread can be started to fingerprint the host state");
  }
  return follower;
}

FingerprintFollower::~FingerprintFollower() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void FingerprintFollower::grew(std::uint64_t filled) {
  {
    const std::lock_guard lock(mutex_);
    filled_ = filled;
  }
  changed_.notify_all();
}

void FingerprintFollower::compute() {
  for (std::uint64_t done = 0;;) {
    std::uint64_t end = 0;
    bool is_whole = false;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return is_ending_ || is_whole_ || filled_ - done >= kMaxChunkBytes; });
      if (is_ending_) return;
      is_whole = is_whole_;
      end = is_whole ? filled_ : filled_ / kBlockBytes * kBlockBytes;
    }
    stream_.add(memory_.subspan(done, end - done));
    done = end;
    if (is_whole) return;
  }
}

Fingerprint FingerprintFollower::finish(std::uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    filled_ = bytes;
    is_whole_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  return stream_.value();
}

}  // namespace ckpt::track
