// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/memory_log.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace ckpt::agent::host {

Result<std::unique_ptr<MemoryLog>> MemoryLog::create(std::uint64_t limit, std::uint64_t expected) {
  UniqueFd file(::memfd_create("gpumigrate-process", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(limit)) != 0 ||
      ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0)
    return Error::from_errno("Cannot create a memory file for a process's pages");
  void* memory = ::mmap(nullptr, limit, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return Error::from_errno("Cannot map a memory file for a process's pages");
  std::unique_ptr<MemoryLog> log(
      new MemoryLog(std::move(file), static_cast<std::byte*>(memory), limit, std::min(expected, limit)));
  // If this call fails, the kernel allocates the memory at the first access.
  (void)::madvise(memory, log->expected_, MADV_POPULATE_WRITE);
  return log;
}

MemoryLog::~MemoryLog() {
  ::munmap(memory_, limit_);
}

Result<UniqueFd> MemoryLog::duplicate_file() const {
  UniqueFd copy(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 3));
  if (!copy) return Error::from_errno("Cannot duplicate a memory file");
  return copy;
}

Result<std::span<std::byte>> MemoryLog::reserve(std::uint64_t bytes) {
  const std::uint64_t filled = filled_.load(std::memory_order_relaxed);
  if (bytes > limit_ - filled)
    return Error(ErrorCode::kOutOfMemory,
                 "Since the move began, the processes have written more memory than the memory log can hold");
  return std::span(memory_ + filled, bytes);
}

std::uint64_t MemoryLog::append(std::uint64_t bytes) {
  return filled_.fetch_add(bytes, std::memory_order_release);
}

}  // namespace ckpt::agent::host
