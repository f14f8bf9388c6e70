// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/session/host_stream.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <system_error>

namespace ckpt::mover {

Result<std::unique_ptr<HostStream>> HostStream::open(UniqueFd file, std::uint64_t most,
                                                     std::uint64_t expected,
                                                     std::shared_ptr<const track::FingerprintParams> params) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0)
    return Error::from_errno("Reading the size of the host state's file");
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (most == 0 || expected > most || static_cast<std::uint64_t>(status.st_size) < most || seals < 0 ||
      (seals & F_SEAL_SHRINK) == 0)
    return Error(ErrorCode::kInvalidArgument,
                 "The host state's file is shorter than it was said to be, or may shrink");
  void* memory = ::mmap(nullptr, most, PROT_READ, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return Error::from_errno("Mapping the host state's file");
  std::unique_ptr<HostStream> stream(
      new HostStream({static_cast<const std::byte*>(memory), most}, expected, std::move(params)));
  try {
    stream->thread_ = std::thread([raw = stream.get()] { raw->compute(); });
  } catch (const std::system_error&) {
    return Error(ErrorCode::kOutOfMemory, "No thread can be started to read the host state");
  }
  return stream;
}

HostStream::~HostStream() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  ::munmap(const_cast<std::byte*>(memory_.data()), memory_.size());
}

Result<void> HostStream::grew(std::uint64_t filled, bool is_whole) {
  {
    const std::lock_guard lock(mutex_);
    if (filled > memory_.size() || filled < extent_.filled || extent_.whole ||
        (is_whole && filled == extent_.filled))
      return Error(ErrorCode::kInvalidArgument, "Host state that grows from " +
                                                    std::to_string(extent_.filled) + " to " +
                                                    std::to_string(filled) + " bytes");
    extent_ = {filled, is_whole};
  }
  changed_.notify_all();
  return ok();
}

HostStream::Extent HostStream::extent() const {
  const std::lock_guard lock(mutex_);
  return extent_;
}

void HostStream::compute() {
  // The agent has given it memory: reading then costs no faults.
  (void)::madvise(const_cast<std::byte*>(memory_.data()), expected_, MADV_POPULATE_READ);
  std::uint64_t done = 0;
  for (;;) {
    Extent now;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(
          lock, [&] { return ending_ || extent_.whole || extent_.filled - done >= track::kMaxChunkBytes; });
      if (ending_) return;
      now = extent_;
    }
    const std::uint64_t end = now.whole ? now.filled : now.filled / track::kBlockBytes * track::kBlockBytes;
    stream_.add(memory_.subspan(done, end - done));
    done = end;
    if (now.whole) return;
  }
}

track::Fingerprint HostStream::fingerprint() {
  if (thread_.joinable()) thread_.join();
  return stream_.value();
}

}  // namespace ckpt::mover
