// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/session/host_stream.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace ckpt::mover {

Result<std::unique_ptr<HostStream>> HostStream::open(UniqueFd file, std::uint64_t limit,
                                                     std::uint64_t expected,
                                                     std::shared_ptr<const track::FingerprintParams> params) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0)
    return Error::from_errno("Cannot read the size of the host state's file");
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (limit == 0 || expected > limit || static_cast<std::uint64_t>(status.st_size) < limit || seals < 0 ||
      (seals & F_SEAL_SHRINK) == 0)
    return Error(ErrorCode::kInvalidArgument, "The host state's file is shorter than stated, or may shrink");
  void* memory = ::mmap(nullptr, limit, PROT_READ, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return Error::from_errno("Cannot map the host state's file");
  const std::shared_ptr<const void> mapping(
      memory, [limit](const void* at) { ::munmap(const_cast<void*>(at), limit); });
  const std::span<const std::byte> view(static_cast<const std::byte*>(memory), limit);
  CKPT_TRY(follower, track::FingerprintFollower::create(std::move(params), view, mapping));
  return std::unique_ptr<HostStream>(new HostStream(view, mapping, expected, std::move(follower)));
}

Result<void> HostStream::grew(std::uint64_t filled, bool is_whole) {
  {
    const std::lock_guard lock(mutex_);
    if (filled > memory_.size() || filled < extent_.filled || extent_.whole ||
        (is_whole && filled == extent_.filled))
      return Error(ErrorCode::kInvalidArgument, "The host state cannot grow from " +
                                                    std::to_string(extent_.filled) + " to " +
                                                    std::to_string(filled) + " bytes");
    extent_ = {filled, is_whole};
  }
  follower_->grew(filled);
  return ok();
}

HostStream::Extent HostStream::extent() const {
  const std::lock_guard lock(mutex_);
  return extent_;
}

track::Fingerprint HostStream::fingerprint() {
  return follower_->finish(extent().filled);
}

}  // namespace ckpt::mover
