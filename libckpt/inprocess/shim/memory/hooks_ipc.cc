// SPDX-License-Identifier: Apache-2.0
// Hooks of cuIpcGetMemHandle, cuIpcOpenMemHandle and cuIpcCloseMemHandle, which are implemented with
// descriptors.
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "libckpt/inprocess/shim/core/gate.h"
#include "libckpt/inprocess/shim/core/hooks.h"
#include "libckpt/inprocess/shim/core/job_state.h"
#include "libckpt/inprocess/shim/memory/blocks.h"
#include "libckpt/inprocess/shim/memory/call_real.h"
#include "libckpt/inprocess/shim/memory/ipc.h"
#include "libckpt/inprocess/shim/memory/memory.h"

namespace ckpt::shim {
namespace {

// Memory of another process that is mapped here.
struct Opened {
  Mapping mapping;
  CUmemGenericAllocationHandle handle = 0;
  CUcontext context = nullptr;
  std::uint64_t offset = 0;
  unsigned times = 0;
  std::unique_ptr<NotMovable> while_open;
};

// The key of an opened mapping: socket, region, offset, context.
using OpenedKey = std::tuple<std::string, std::uint64_t, std::uint64_t, CUcontext>;

struct OpenedTable {
  std::mutex mutex;
  std::map<OpenedKey, Opened> all;
};

OpenedTable& opened_table() {
  static auto* const table = new OpenedTable;
  return *table;
}

// Marks the block around `pointer` as shared, so that other processes may open it from now on. Returns false
// if the block cannot be shared.
bool hand_out(MemoryState& state, CUdeviceptr pointer, IpcName* name) {
  const std::unique_lock lock(state.mutex);
  const auto found = state.block_at(pointer);
  if (found == state.blocks.end() || found->second.owner.pool != nullptr) return false;
  const auto block = state.blocks.find(found->first);
  if (block->second.handed_out == nullptr)
    block->second.handed_out = std::make_shared<const NotMovable>("cuIpcGetMemHandle");
  const Region* region = state.regions.find(block->second.region);
  name->region = region->id;
  name->offset = block->first - region->mappings.begin()->first;
  return true;
}

CUresult map_opened(const RealDriver& driver, const IpcMemory& memory, int device, Opened* opened) {
  void* const os_handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(memory.fd.get()));
  CUresult result = driver.cuMemImportFromShareableHandle(&opened->handle, os_handle,
                                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != CUDA_SUCCESS) return result;
  CUdeviceptr address = 0;
  result = driver.cuMemAddressReserve(&address, memory.bytes, 0, 0, 0);
  if (result == CUDA_SUCCESS) {
    opened->mapping = {address, memory.bytes, 0, {access_of(device)}};
    result = map_one(driver, opened->mapping, opened->handle);
    if (result != CUDA_SUCCESS) driver.cuMemAddressFree(address, memory.bytes);
  }
  if (result != CUDA_SUCCESS) driver.cuMemRelease(opened->handle);
  return result;
}

CUresult open_memory(const IpcName& name, CUdeviceptr* pointer) {
  MemoryState& state = shim_memory().state();
  Owner owner;
  CUresult result = current_owner(state.driver, &owner);
  if (result != CUDA_SUCCESS) return result;
  if (name.pid == ::getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  const OpenedKey key{std::string(name.socket, ::strnlen(name.socket, sizeof name.socket)), name.region,
                      name.offset, owner.context};
  OpenedTable& table = opened_table();
  const std::lock_guard lock(table.mutex);
  auto found = table.all.find(key);
  if (found == table.all.end()) {
    const Result<IpcMemory> memory = fetch_ipc_memory(name);
    if (!memory.has_value() || name.offset >= memory->bytes) return CUDA_ERROR_INVALID_HANDLE;
    Opened opened;
    result = map_opened(state.driver, *memory, owner.device, &opened);
    if (result != CUDA_SUCCESS) return result;
    opened.context = owner.context;
    opened.offset = name.offset;
    opened.while_open = std::make_unique<NotMovable>("cuIpcOpenMemHandle");
    found = table.all.emplace(key, std::move(opened)).first;
  }
  ++found->second.times;
  *pointer = found->second.mapping.address + name.offset;
  return CUDA_SUCCESS;
}

template <class Call>
CUresult open_handle(CUdeviceptr* pointer, const CUipcMemHandle& handle, unsigned flags, Call driver_call) {
  IpcName name;
  std::memcpy(static_cast<void*>(&name), &handle, sizeof name);
  if (name.mark != kIpcMark || pointer == nullptr) return driver_call();
  if (flags > CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  return open_memory(name, pointer);
}

}  // namespace

namespace hook {

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
  MemoryState& state = shim_memory().state();
  Owner owner;
  IpcName name;
  if (handle == nullptr || current_owner(state.driver, &owner) != CUDA_SUCCESS ||
      !hand_out(state, pointer, &name)) {
    const CUresult result = call_real(real().cuIpcGetMemHandle, handle, pointer);
    if (result == CUDA_SUCCESS) not_movable("cuIpcGetMemHandle");
    return result;
  }
  const Result<std::string> socket = ipc_server_name();
  if (!socket.has_value() || socket->size() >= sizeof name.socket) return CUDA_ERROR_OPERATING_SYSTEM;
  name.mark = kIpcMark;
  std::memcpy(name.socket, socket->data(), socket->size());
  name.pid = ::getpid();
  std::memcpy(handle, &name, sizeof name);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned int flags) {
  return open_handle(pointer, handle, flags, [&] {
    const CUresult result = call_real(real().cuIpcOpenMemHandle, pointer, handle, flags);
    if (result == CUDA_SUCCESS) not_movable("cuIpcOpenMemHandle");
    return result;
  });
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned int flags) {
  return open_handle(pointer, handle, flags, [&] {
    const CUresult result = call_real(real().cuIpcOpenMemHandle_v2, pointer, handle, flags);
    if (result == CUDA_SUCCESS) not_movable("cuIpcOpenMemHandle");
    return result;
  });
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
  MemoryState& state = shim_memory().state();
  OpenedTable& table = opened_table();
  const std::lock_guard lock(table.mutex);
  for (auto found = table.all.begin(); found != table.all.end(); ++found) {
    Opened& opened = found->second;
    if (opened.mapping.address + opened.offset != pointer) continue;
    if (opened.times == 1) {
      const CUresult result = wait_for_work(state, {0, opened.context, nullptr});
      if (result != CUDA_SUCCESS) return result;
      state.driver.cuMemUnmap(opened.mapping.address, opened.mapping.bytes);
      state.driver.cuMemRelease(opened.handle);
      state.driver.cuMemAddressFree(opened.mapping.address, opened.mapping.bytes);
      table.all.erase(found);
    } else {
      --opened.times;
    }
    return CUDA_SUCCESS;
  }
  return call_real(real().cuIpcCloseMemHandle, pointer);
}

}  // namespace hook
}  // namespace ckpt::shim
