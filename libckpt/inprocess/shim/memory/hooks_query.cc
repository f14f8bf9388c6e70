// SPDX-License-Identifier: Apache-2.0
// Hooks of the queries about pointers. The real driver answers for the shim's memory as for a program's own
// mapping. These hooks replace the answers that differ for cuMemAlloc memory.
#include <atomic>
#include <mutex>

#include "libckpt/inprocess/shim/core/hooks.h"
#include "libckpt/inprocess/shim/memory/call_real.h"
#include "libckpt/inprocess/shim/memory/capture.h"
#include "libckpt/inprocess/shim/memory/memory.h"
#include "libckpt/inprocess/shim/memory/state.h"

namespace ckpt::shim {
namespace {

// An address that is not memory of the driver, used to obtain the driver's answer for such an address.
constexpr CUdeviceptr kNowhere = 8;
// A number above those that the driver assigns to its own buffers.
constexpr std::uint64_t kFirstNumber = std::uint64_t{1} << 40;

struct Facts {
  bool ours = false;
  bool allocated = false;  // whether the address is in an allocation; false if it is in a free piece of the
                           // shim's memory
  CUdeviceptr base = 0;
  Block block;
  CUmemoryPool pool = nullptr;
};

Facts facts_of(CUdeviceptr address) {
  const MemoryState& state = shim_memory().state();
  const std::shared_lock lock(state.mutex);
  const auto found = state.block_at(address);
  if (found != state.blocks.end()) {
    const Pool* pool = found->second.owner.pool;
    return {true, true, found->first, found->second, pool != nullptr ? pool->handle : nullptr};
  }
  const Region* region = state.regions.at(address);
  return {region != nullptr && region->use != RegionUse::kProgram, false, 0, {}, nullptr};
}

// Returns whether the driver's own cuMemAlloc memory can be shared by legacy IPC, which the shim emulates for
// its own memory. The query is made once, with a small allocation.
int ipc_capable() {
  static std::atomic<int> known{-1};
  int capable = known.load(std::memory_order_relaxed);
  if (capable >= 0 || captures_open()) return capable > 0 ? 1 : 0;
  CUdeviceptr probe = 0;
  if (call_real(real().cuMemAlloc_v2, &probe, std::size_t{1}) != CUDA_SUCCESS) return 0;
  const CUresult result = call_real(real().cuPointerGetAttribute, &capable,
                                    CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, probe);
  call_real(real().cuMemFree_v2, probe);
  if (result != CUDA_SUCCESS) return 0;
  capable = capable != 0 ? 1 : 0;
  known.store(capable, std::memory_order_relaxed);
  return capable;
}

// Answers as the real driver would for cuMemAlloc memory. Returns false if the driver's answer for the shim's
// memory is the same.
bool answer(const Facts& facts, CUpointer_attribute attribute, void* out) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(out) = facts.block.owner.context;
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(out) = facts.base;
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<std::size_t*>(out) = facts.block.bytes;
      return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long*>(out) = kFirstNumber + facts.block.number;
      return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      *static_cast<unsigned long long*>(out) = 0;
      return true;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *static_cast<bool*>(out) = facts.pool == nullptr && ipc_capable() != 0;
      return true;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      *static_cast<CUmemoryPool*>(out) = facts.pool;
      return true;
    default:
      return false;
  }
}

// Answers for a program's mapping: the handle types that the program requested, not those that the shim
// added.
bool answer_handle_types(CUdeviceptr address, void* out) {
  const MemoryState& state = shim_memory().state();
  const std::shared_lock lock(state.mutex);
  const Region* region = state.regions.at(address);
  if (region == nullptr || region->use != RegionUse::kProgram) return false;
  *static_cast<unsigned long long*>(out) = region->asked.requestedHandleTypes;
  return true;
}

}  // namespace

namespace hook {

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr pointer) {
  const Facts facts = facts_of(pointer);
  if (!facts.ours) return call_real(real().cuMemGetAddressRange_v2, base, bytes, pointer);
  if (!facts.allocated) return call_real(real().cuMemGetAddressRange_v2, base, bytes, kNowhere);
  const CUresult result = call_real(real().cuMemGetAddressRange_v2, base, bytes, pointer);
  if (result != CUDA_SUCCESS) return result;
  if (base != nullptr) *base = facts.base;
  if (bytes != nullptr) *bytes = facts.block.bytes;
  return result;
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  const Facts facts = facts_of(pointer);
  const CUdeviceptr asked = facts.ours && !facts.allocated ? kNowhere : pointer;
  const CUresult result = call_real(real().cuPointerGetAttribute, data, attribute, asked);
  if (data == nullptr) return result;
  if (facts.allocated) {
    // The driver has no pool for such memory, but the program has one.
    if (result == CUDA_SUCCESS || attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) {
      return answer(facts, attribute, data) ? CUDA_SUCCESS : result;
    }
  } else if (result == CUDA_SUCCESS && attribute == CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES) {
    answer_handle_types(pointer, data);
  }
  return result;
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr pointer) {
  const Facts facts = facts_of(pointer);
  const CUdeviceptr asked = facts.ours && !facts.allocated ? kNowhere : pointer;
  const CUresult result = call_real(real().cuPointerGetAttributes, count, attributes, data, asked);
  if (result != CUDA_SUCCESS) return result;
  for (unsigned i = 0; i < count; ++i) {
    if (facts.allocated) {
      answer(facts, attributes[i], data[i]);
    } else if (attributes[i] == CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES) {
      answer_handle_types(pointer, data[i]);
    }
  }
  return result;
}

}  // namespace hook
}  // namespace ckpt::shim
