// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/shared/pinned_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#ifndef MADV_POPULATE_WRITE  // defined since Linux 5.14; older headers lack it
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE  // defined since Linux 6.1; older headers lack it
#define MADV_COLLAPSE 25
#endif

namespace ckpt::engine {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Reserves an address at which huge pages can begin.
Result<std::byte*> reserve(std::size_t bytes) {
  const std::size_t reserved = bytes + kHugePage;
  void* at = ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return Error::from_errno("Cannot reserve addresses for pinned memory");
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  const std::size_t before = (kHugePage - address % kHugePage) % kHugePage;
  auto* begin = static_cast<std::byte*>(at) + before;
  if (before > 0) ::munmap(at, before);
  ::munmap(begin + bytes, reserved - before - bytes);
  return begin;
}

}  // namespace

Result<PinnedMemory> PinnedMemory::create(const Device& device, std::size_t bytes) {
  auto in_file = create_in_file(device, bytes);
  if (in_file) return in_file;
  const ContextScope scope(device);
  void* memory = nullptr;
  CKPT_CUDA_TRY(device.api(), cuMemHostAlloc(&memory, bytes, 0));
  // The driver's pages exist, of a size that the driver chooses. This process's page table entries may not
  // exist yet, so memset() creates them.
  std::memset(memory, 0, bytes);
  return PinnedMemory(device, static_cast<std::byte*>(memory), bytes, {});
}

Result<PinnedMemory> PinnedMemory::create_in_file(const Device& device, std::size_t bytes) {
  CKPT_TRY(file, make_memory_file("ckpt-staging", bytes));
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SEAL) != 0)
    return Error::from_errno("Cannot seal a memory file");
  return map(device, std::move(file), bytes);
}

Result<PinnedMemory> PinnedMemory::open(const Device& device, UniqueFd file, std::size_t bytes) {
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return Error::from_errno("Cannot inspect the peer's memory file");
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (!S_ISREG(facts.st_mode) || seals < 0 || (seals & kSeals) != kSeals ||
      facts.st_size != static_cast<off_t>(bytes))
    return Error(ErrorCode::kProtocol, "The peer's memory is not a sealed memory file of the announced size");
  return map(device, std::move(file), bytes);
}

Result<PinnedMemory> PinnedMemory::map(const Device& device, UniqueFd file, std::size_t bytes) {
  CKPT_TRY(at, reserve(bytes));
  if (::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(), 0) == MAP_FAILED) {
    const Error error = Error::from_errno("Cannot map a memory file");
    ::munmap(at, bytes);
    return error;
  }
  ::madvise(at, bytes, MADV_HUGEPAGE);
  Error error(ErrorCode::kOutOfMemory, "There is no memory for " + std::to_string(bytes) + " pinned bytes");
  if (::madvise(at, bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL) {
    ::madvise(at, bytes, MADV_COLLAPSE);  // makes huge pages independently of the machine's setting for
                                          // shared memory
    const ContextScope scope(device);
    const CUresult pinned = device.api().cuMemHostRegister_v2(at, bytes, 0);
    if (pinned == CUDA_SUCCESS) return PinnedMemory(device, at, bytes, std::move(file));
    error = cuda_error(device.api(), pinned, "cuMemHostRegister");
  }
  ::munmap(at, bytes);
  return error;
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept
    : device_(other.device_),
      memory_(std::exchange(other.memory_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      file_(std::move(other.file_)) {}

PinnedMemory::~PinnedMemory() {
  if (memory_ == nullptr) return;
  const ContextScope scope(*device_);
  if (!file_) {
    device_->api().cuMemFreeHost(memory_);
    return;
  }
  device_->api().cuMemHostUnregister(memory_);
  ::munmap(memory_, bytes_);
}

}  // namespace ckpt::engine
