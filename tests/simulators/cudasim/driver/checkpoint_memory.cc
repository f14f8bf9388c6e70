// SPDX-License-Identifier: Apache-2.0
// The memory of a process in its checkpoint. The content is saved to private memory, and restored to new
// physical memory at the same addresses. Handles, mappings and reservations belong to the process and do not
// change.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tests/simulators/cudasim/driver/backing/backing.h"
#include "tests/simulators/cudasim/driver/memory.h"
#include "tests/simulators/cudasim/driver/process.h"

namespace cudasim {
namespace {

bool move_bytes(int fd, unsigned char* memory, std::uint64_t bytes, bool to_file) {
  for (std::uint64_t done = 0; done < bytes;) {
    const auto at = static_cast<off_t>(done);
    const ssize_t part = to_file ? ::pwrite(fd, memory + done, bytes - done, at)
                                 : ::pread(fd, memory + done, bytes - done, at);
    if (part <= 0) return false;
    done += static_cast<std::uint64_t>(part);
  }
  return true;
}

void free_saved(Physical* physical) {
  if (physical->saved != nullptr) ::munmap(physical->saved, physical->bytes);
  physical->saved = nullptr;
}

}  // namespace

// Returns all existing physical memory, by handle or mapping.
std::vector<std::shared_ptr<Physical>> Memory::all() const {
  std::set<std::shared_ptr<Physical>> found;
  for (const auto& [handle, physical] : handles_) found.insert(physical);
  for (const auto& [address, mapping] : mappings_) found.insert(mapping.physical);
  std::erase_if(found, [](const std::shared_ptr<Physical>& physical) { return physical->owner == nullptr; });
  return {found.begin(), found.end()};
}

bool Memory::has_imports() const {
  const auto physicals = all();
  return std::any_of(physicals.begin(), physicals.end(),
                     [](const std::shared_ptr<Physical>& physical) { return physical->imported; });
}

CUresult Memory::save() {
  for (const std::shared_ptr<Physical>& physical : all()) {
    int fd = -1;
    CUresult result = share(physical, &fd);
    if (result != CUDA_SUCCESS) return result;
    void* saved =
        ::mmap(nullptr, physical->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (saved == MAP_FAILED) result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) physical->saved = static_cast<unsigned char*>(saved);
    if (result == CUDA_SUCCESS && !move_bytes(fd, physical->saved, physical->bytes, false))
      result = CUDA_ERROR_OUT_OF_MEMORY;
    ::close(fd);
    if (result != CUDA_SUCCESS) return result;
  }
  for (auto& [address, block] : host_) {
    // The descriptor would become part of an image. A restored executor reaches the memory through the
    // process.
    unmap_registered(&block);
    if (block.fd < 0) continue;
    if (!make_private(reinterpret_cast<void*>(address), block.bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    ::close(block.fd);
    block.fd = kPrivateBacking;
  }
  return CUDA_SUCCESS;
}

// Undoes a failed save(), so that the memory is as before the call.
void Memory::forget_saved() {
  for (const std::shared_ptr<Physical>& physical : all()) free_saved(physical.get());
  share_host();
}

CUresult Memory::restore() {
  for (const std::shared_ptr<Physical>& physical : all()) {
    physical->attached.clear();
    ReplyMessage reply{};
    CUresult result = physical->owner->call(
        {Request::kMemoryCreate, {physical->bytes, physical->exportable ? 1U : 0U}}, &reply);
    if (result != CUDA_SUCCESS) return result;
    physical->id = reply.a[0];
    int fd = -1;
    result = share(physical, &fd);
    if (result != CUDA_SUCCESS) return result;
    const bool written = move_bytes(fd, physical->saved, physical->bytes, true);
    ::close(fd);
    if (!written) return CUDA_ERROR_OUT_OF_MEMORY;
    free_saved(physical.get());
  }
  for (auto& [address, mapping] : mappings_) {
    if (mapping.physical->owner == nullptr) continue;
    const std::map<Context*, bool> live = std::exchange(mapping.live, {});
    for (const auto& [context, writable] : live) {
      const CUresult result = make_live(&mapping, context, writable);
      if (result != CUDA_SUCCESS) return result;
    }
  }
  return share_host();
}

CUresult Memory::share_host() {
  for (auto& [address, block] : host_) {
    if (block.fd != kPrivateBacking) continue;
    const int fd = ::memfd_create("cudasim-host", MFD_CLOEXEC);
    if (fd < 0 || !make_shared(reinterpret_cast<void*>(address), block.bytes, fd)) {
      if (fd >= 0) ::close(fd);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    block.fd = fd;
    for (Context* context : Process::get().contexts) {
      const CUresult result =
          context->call({Request::kHostMap, {address, block.bytes}}, fd, nullptr, nullptr);
      if (result != CUDA_SUCCESS) return result;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace cudasim
