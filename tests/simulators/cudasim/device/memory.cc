// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/cudasim/device/memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "tests/simulators/cudasim/card/settings.h"

#ifndef MADV_COLLAPSE  // Linux 6.1 has this constant, older headers do not
#define MADV_COLLAPSE 25
#endif

namespace cudasim {
namespace {

constexpr unsigned char kFill = 0xA5;

// Populates memory only for speed: a GPU has no first touch. A refusal changes only the speed. Populates for
// reading, which maps 16 pages per fault. Shared memory that is mapped for reading can be written without
// another fault.
void make_fast(void* address, std::uint64_t bytes) {
  ::madvise(address, bytes, MADV_POPULATE_READ);
}

// Puts huge pages under a new file, regardless of the machine's settings (MADV_COLLAPSE ignores them).
// Refused ranges stay in small pages. The kernel collapses only ranges with an existing page. Several ranges
// in one call need only one wait for all processors.
void take_huge_pages(int fd, std::uint64_t bytes) {
  constexpr std::uint64_t kPage = std::uint64_t{2} << 20;
  constexpr std::uint64_t kStep = 32 * kPage;
  void* reserved =
      ::mmap(nullptr, bytes + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return;
  auto* start = reinterpret_cast<unsigned char*>((reinterpret_cast<std::uint64_t>(reserved) + kPage - 1) /
                                                 kPage * kPage);
  bool taken = ::mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
  for (std::uint64_t at = 0; taken && at + kPage <= bytes; at += kStep) {
    const std::uint64_t part = std::min(bytes - at, kStep) / kPage * kPage;
    for (std::uint64_t page = at; taken && page < at + part; page += kPage)
      taken = ::pwrite(fd, &kFill, 1, static_cast<off_t>(page)) == 1;
    taken = taken && ::madvise(start + at, part, MADV_COLLAPSE) == 0;
  }
  ::munmap(reserved, bytes + kPage);
}

// Fills new memory with junk. The real driver promises no content of new memory; this driver promises junk.
// Writing the file is faster than filling a mapping, since no page is zeroed first. A machine without free
// memory causes an error at this point instead of a SIGBUS later.
bool fill_new_memory(int fd, std::uint64_t bytes) {
  static const std::vector<unsigned char> junk(256 * 1024, kFill);
  for (std::uint64_t at = 0; at < bytes;) {
    const std::uint64_t part = std::min<std::uint64_t>(bytes - at, junk.size());
    const ssize_t written = ::pwrite(fd, junk.data(), part, static_cast<off_t>(at));
    if (written <= 0) return false;
    at += static_cast<std::uint64_t>(written);
  }
  return true;
}

}  // namespace

CUresult DeviceMemory::create(std::uint64_t bytes, bool exportable, std::uint64_t* id) {
  const int fd = ::memfd_create("cudasim", MFD_CLOEXEC);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0 || !hold_memory(fd)) {
    ::close(fd);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  Card* card = cards_[static_cast<std::size_t>(device_)].get();
  const int entry = card->add_memory(fd, bytes, program_, exportable);
  if (entry >= 0 && settings().huge_pages) take_huge_pages(fd, bytes);
  if (entry < 0 || !fill_new_memory(fd, bytes)) {
    ::close(fd);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *id = next_id_++;
  held_[*id] = {fd, entry, bytes, card};
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::adopt(int fd, bool exported_only, std::uint64_t* id, std::uint64_t* bytes,
                             int* device) {
  for (const std::unique_ptr<Card>& card : cards_) {
    bool exportable = false;
    const int entry = card->find_memory(fd, bytes, &exportable);
    if (entry < 0) continue;
    if (exported_only && !exportable) return CUDA_ERROR_INVALID_VALUE;
    const int own = reopen_memory(fd);
    if (own < 0 || !hold_memory(own)) {
      if (own >= 0) ::close(own);
      return CUDA_ERROR_OPERATING_SYSTEM;
    }
    card->memory_taken(entry);
    *id = next_id_++;
    *device = card->index();
    held_[*id] = {own, entry, *bytes, card.get()};
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult DeviceMemory::import(int fd, std::uint64_t* id, std::uint64_t* bytes, int* device) {
  return adopt(fd, true, id, bytes, device);
}

CUresult DeviceMemory::attach(int fd, std::uint64_t* id, std::uint64_t* bytes, int* device) {
  return adopt(fd, false, id, bytes, device);
}

CUresult DeviceMemory::share(std::uint64_t id, int* fd) {
  const auto found = held_.find(id);
  if (found == held_.end()) return CUDA_ERROR_INVALID_VALUE;
  *fd = reopen_memory(found->second.fd);
  if (*fd >= 0 && hold_memory(*fd)) return CUDA_SUCCESS;
  if (*fd >= 0) ::close(*fd);
  *fd = -1;
  return CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult DeviceMemory::number(std::uint64_t id, std::uint64_t out[3]) {
  const auto found = held_.find(id);
  struct stat info {};
  if (found == held_.end() || ::fstat(found->second.fd, &info) != 0) return CUDA_ERROR_INVALID_VALUE;
  out[0] = static_cast<std::uint64_t>(found->second.fd);
  out[1] = info.st_dev;
  out[2] = info.st_ino;
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::drop(std::uint64_t id) {
  const auto found = held_.find(id);
  if (found == held_.end()) return CUDA_ERROR_INVALID_VALUE;
  const Memory memory = found->second;
  held_.erase(found);
  const int probe = reopen_memory(memory.fd);
  ::close(memory.fd);
  if (probe < 0) return CUDA_SUCCESS;  // the next sweep finds the free entry
  memory.card->memory_let_go(memory.entry, probe);
  ::close(probe);
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::map(std::uint64_t id, std::uint64_t address, bool writable) {
  const auto found = held_.find(id);
  if (found == held_.end()) return CUDA_ERROR_INVALID_VALUE;
  void* at = reinterpret_cast<void*>(address);
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  if (::mmap(at, found->second.bytes, protection, MAP_SHARED | MAP_FIXED, found->second.fd, 0) ==
      MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  make_fast(at, found->second.bytes);
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::unmap(std::uint64_t address, std::uint64_t bytes) {
  void* at = reinterpret_cast<void*>(address);
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  return ::mmap(at, bytes, PROT_NONE, flags, -1, 0) == MAP_FAILED ? CUDA_ERROR_OPERATING_SYSTEM
                                                                  : CUDA_SUCCESS;
}

CUresult DeviceMemory::map_host(int fd, std::uint64_t address, std::uint64_t bytes) {
  void* at = reinterpret_cast<void*>(address);
  if (::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  make_fast(at, bytes);
  return CUDA_SUCCESS;
}

}  // namespace cudasim
