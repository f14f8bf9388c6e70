// SPDX-License-Identifier: Apache-2.0
// Legacy IPC: memory of cuMemAlloc in another process. A handle names the executor that holds the memory, and
// the executor's descriptor. The other process opens the descriptor through /proc. Like a real handle it is
// valid as long as the memory exists. Events are not shared.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "tests/simulators/cudasim/driver/api.h"

namespace cudasim {
namespace {

constexpr std::uint64_t kMagic = 0x6375646173696d69ULL;

struct Content {
  std::uint64_t magic;
  std::uint64_t device;  // st_dev of the file
  std::uint64_t inode;
  std::uint64_t bytes;
  std::uint64_t offset;
  std::int32_t program;
  std::int32_t executor;
  std::int32_t number;
};
static_assert(sizeof(Content) <= sizeof(CUipcMemHandle));

struct Opened {
  std::uint64_t address;  // start address of the whole physical memory
  std::uint64_t bytes;
  CUmemGenericAllocationHandle handle;
  unsigned users;
};

// Returns the opened handles by file. The caller holds Process::lock.
std::map<std::pair<Context*, std::uint64_t>, Opened>& opened() {
  static auto* all = new std::map<std::pair<Context*, std::uint64_t>, Opened>;
  return *all;
}

// Opens exactly the file from which the handle was created. Returns -1 on failure.
int open_file(const Content& content) {
  const std::string path =
      "/proc/" + std::to_string(content.executor) + "/fd/" + std::to_string(content.number);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat info {};
  if (fd >= 0 && ::fstat(fd, &info) == 0 && info.st_dev == content.device && info.st_ino == content.inode)
    return fd;
  if (fd >= 0) ::close(fd);
  return -1;
}

CUresult map_file(Context* context, int fd, std::uint64_t bytes, Opened* out) {
  std::shared_ptr<Physical> physical;
  CUDASIM_TRY(Memory::get().attach(context, fd, &physical));
  out->bytes = bytes;
  out->users = 0;
  out->handle = Memory::get().add_handle(physical);
  CUresult result = Memory::get().reserve(bytes, 0, 0, &out->address);
  if (result == CUDA_SUCCESS) result = Memory::get().map(out->address, bytes, out->handle);
  if (result == CUDA_SUCCESS)
    result =
        Memory::get().set_access(out->address, bytes, context->ordinal(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  return result;
}

}  // namespace
}  // namespace cudasim

namespace cudasim::api {

CUresult cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr address) {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  CUDASIM_CHECK(out != nullptr, CUDA_ERROR_INVALID_VALUE);
  Shared lock(Process::get().lock);
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
  const Mapping* mapping = Memory::get().find_mapping(address);
  CUDASIM_CHECK(
      mapping != nullptr && mapping->physical->plain && Memory::get().range_of(address, &base, &bytes),
      CUDA_ERROR_INVALID_VALUE);
  Context* owner = mapping->physical->owner;
  ReplyMessage reply{};
  CUDASIM_TRY(owner->call({Request::kMemoryNumber, {mapping->physical->id}}, &reply));
  const Content content{kMagic,
                        reply.a[1],
                        reply.a[2],
                        mapping->physical->bytes,
                        base - mapping->address,
                        static_cast<std::int32_t>(::getpid()),
                        static_cast<std::int32_t>(owner->executor()),
                        static_cast<std::int32_t>(reply.a[0])};
  *out = {};
  std::memcpy(out, &content, sizeof content);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle handle, unsigned int flags) {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  CUDASIM_CHECK(out != nullptr && flags <= CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, CUDA_ERROR_INVALID_VALUE);
  Content content{};
  std::memcpy(&content, &handle, sizeof content);
  CUDASIM_CHECK(content.magic == kMagic && content.offset < content.bytes, CUDA_ERROR_INVALID_HANDLE);
  CUDASIM_CHECK(content.program != ::getpid(), CUDA_ERROR_INVALID_CONTEXT);
  Exclusive lock(Process::get().lock);
  const auto key = std::make_pair(context, content.inode);
  auto found = opened().find(key);
  if (found == opened().end()) {
    const int fd = open_file(content);
    CUDASIM_CHECK(fd >= 0, CUDA_ERROR_INVALID_HANDLE);
    Opened fresh{};
    const CUresult result = map_file(context, fd, content.bytes, &fresh);
    ::close(fd);
    if (result != CUDA_SUCCESS) return result;
    found = opened().emplace(key, fresh).first;
  }
  found->second.users++;
  *out = found->second.address + content.offset;
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* out, CUipcMemHandle handle, unsigned int flags) {
  return api::cuIpcOpenMemHandle_v2(out, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  CUDASIM_TRY(context->synchronize());
  Exclusive lock(Process::get().lock);
  for (auto found = opened().begin(); found != opened().end(); ++found) {
    Opened& memory = found->second;
    if (address < memory.address || address >= memory.address + memory.bytes) continue;
    if (--memory.users > 0) return CUDA_SUCCESS;
    const Opened gone = memory;
    opened().erase(found);
    CUDASIM_TRY(Memory::get().unmap(gone.address, gone.bytes));
    CUDASIM_TRY(Memory::get().unreserve(gone.address, gone.bytes));
    return Memory::get().release_handle(gone.handle);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace cudasim::api
