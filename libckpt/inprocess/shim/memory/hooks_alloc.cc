// SPDX-License-Identifier: Apache-2.0
// Hooks of plain device memory: cuMemAlloc, cuMemAllocPitch, cuMemFree, cuMemGetInfo. The file also hooks the
// functions that destroy contexts, because the memory of a context is then freed.
#include <algorithm>

#include "libckpt/inprocess/shim/core/contexts.h"
#include "libckpt/inprocess/shim/core/hooks.h"
#include "libckpt/inprocess/shim/core/job_state.h"
#include "libckpt/inprocess/shim/memory/blocks.h"
#include "libckpt/inprocess/shim/memory/call_real.h"
#include "libckpt/inprocess/shim/memory/capture.h"
#include "libckpt/inprocess/shim/memory/memory.h"
#include "libckpt/inprocess/shim/memory/pools.h"

namespace ckpt::shim {
namespace {

constexpr std::size_t kPitch = 512;

// Returns the driver's error if this context cannot allocate memory now: its sticky error, or a capture that
// forbids it.
CUresult may_allocate(MemoryState& state, const Owner& owner) {
  return captures_open() ? ask_beside_capture(state.driver) : ask_context(state, owner);
}

bool is_movable(MemoryState& state, int device) {
  if (state.facts_for(device).movable) return true;
  not_movable("cuMemAlloc (this GPU has no virtual memory management with descriptors)");
  return false;
}

// Handles a release of the device's primary context. If it was the last release, the context's memory is
// freed.
template <class Call>
CUresult end_primary_context(CUdevice device, Call call) {
  EndingCaptures captures(primary_context(shim_memory().state(), device));
  const CUresult result = call_real(call, device);
  if (result != CUDA_SUCCESS) return result;
  unsigned flags = 0;
  int active = 0;
  if (call_real(real().cuDevicePrimaryCtxGetState, device, &flags, &active) == CUDA_SUCCESS && active == 0) {
    captures.ended();
    free_primary_context(shim_memory().state(), device);
  }
  return result;
}

template <class Call>
CUresult destroy_context(CUcontext context, Call call) {
  EndingCaptures captures(context);
  const CUresult result = call_real(call, context);
  if (result != CUDA_SUCCESS) return result;
  captures.ended();
  erase_context(context);
  free_context(shim_memory().state(), context);
  return result;
}

}  // namespace

namespace hook {

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  Owner owner;
  MemoryState& state = shim_memory().state();
  if (current_owner(state.driver, &owner) != CUDA_SUCCESS || pointer == nullptr || bytes == 0 ||
      !is_movable(state, owner.device)) {
    return call_real(real().cuMemAlloc_v2, pointer, bytes);
  }
  const CUresult result = may_allocate(state, owner);
  return result == CUDA_SUCCESS ? allocate_block(state, owner, bytes, pointer) : result;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* pointer, size_t* pitch, size_t width, size_t height,
                            unsigned int element_bytes) {
  Owner owner;
  MemoryState& state = shim_memory().state();
  const bool element_fits = element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
  std::size_t padded = 0;
  std::size_t bytes = 0;
  if (current_owner(state.driver, &owner) != CUDA_SUCCESS || pointer == nullptr || pitch == nullptr ||
      width == 0 || height == 0 || !element_fits || __builtin_add_overflow(width, kPitch - 1, &padded) ||
      __builtin_mul_overflow(padded / kPitch * kPitch, height, &bytes) || !is_movable(state, owner.device)) {
    return call_real(real().cuMemAllocPitch_v2, pointer, pitch, width, height, element_bytes);
  }
  CUresult result = may_allocate(state, owner);
  if (result == CUDA_SUCCESS) result = allocate_block(state, owner, bytes, pointer);
  if (result == CUDA_SUCCESS) *pitch = padded / kPitch * kPitch;
  return result;
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
  Owner owner;
  MemoryState& state = shim_memory().state();
  if (pointer != 0 && current_owner(state.driver, &owner) == CUDA_SUCCESS) {
    if (const std::optional<CUresult> result = free_block(state, pointer)) return *result;
  }
  return call_real(real().cuMemFree_v2, pointer);
}

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  Owner owner;
  MemoryState& state = shim_memory().state();
  memory_synchronized();
  const CUresult result = call_real(real().cuMemGetInfo_v2, free_bytes, total);
  if (result != CUDA_SUCCESS || free_bytes == nullptr || total == nullptr ||
      current_owner(state.driver, &owner) != CUDA_SUCCESS) {
    return result;
  }
  const std::uint64_t spare = spare_bytes(state, owner.device);
  *free_bytes = std::min(*free_bytes + spare, *total);
  const std::uint64_t limit = state.quota.limit();
  if (limit != 0 && limit < *total) {
    const std::uint64_t used = state.quota.used(owner.device) - spare;
    *total = limit;
    *free_bytes = std::min(*free_bytes, limit - std::min(limit, used));
  }
  return result;
}

CUresult cuCtxDestroy(CUcontext context) {
  return destroy_context(context, real().cuCtxDestroy);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
  return destroy_context(context, real().cuCtxDestroy_v2);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  const CUresult result = call_real(real().cuDevicePrimaryCtxRetain, context, device);
  if (result != CUDA_SUCCESS) return result;
  note_primary_context(shim_memory().state(), device, *context);
  note_first_context();
  return result;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return end_primary_context(device, real().cuDevicePrimaryCtxRelease);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return end_primary_context(device, real().cuDevicePrimaryCtxRelease_v2);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return end_primary_context(device, real().cuDevicePrimaryCtxReset);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return end_primary_context(device, real().cuDevicePrimaryCtxReset_v2);
}

}  // namespace hook
}  // namespace ckpt::shim
