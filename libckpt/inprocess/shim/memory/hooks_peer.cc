// SPDX-License-Identifier: Apache-2.0
// Peer access. The driver tracks it, and the shim opens each allocation for the peers.
#include <mutex>

#include "libckpt/inprocess/shim/core/hooks.h"
#include "libckpt/inprocess/shim/memory/blocks.h"
#include "libckpt/inprocess/shim/memory/call_real.h"
#include "libckpt/inprocess/shim/memory/memory.h"

namespace ckpt::shim {
namespace {

// Sets the access of a device to all memory of an owner. Call it with the mutex held. Returns the first
// refusal.
CUresult set_access_to_all(MemoryState& state, const void* owner, const CUmemAccessDesc& access) {
  for (auto& [id, region] : state.regions.by_id()) {
    if (region.use == RegionUse::kProgram || region.owner.key() != owner || region.handle == 0) continue;
    if (region.owner.device == access.location.id) continue;
    for (auto& [address, mapping] : region.mappings) {
      const CUresult result = state.driver.cuMemSetAccess(address, mapping.bytes, &access, 1);
      if (result != CUDA_SUCCESS) return result;
      mapping.set_access(access);
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

namespace hook {

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  MemoryState& state = shim_memory().state();
  Owner user;
  CUresult result = call_real(real().cuCtxEnablePeerAccess, peer, flags);
  if (result != CUDA_SUCCESS) return result;
  result = current_owner(state.driver, &user);
  if (result != CUDA_SUCCESS) return result;
  const std::unique_lock lock(state.mutex);
  result = set_access_to_all(state, peer, access_of(user.device));
  if (result == CUDA_SUCCESS) {
    state.peers.enable(user.context, user.device, peer);
  } else {
    set_access_to_all(state, peer, access_of(user.device, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    real().cuCtxDisablePeerAccess(peer);
  }
  return result;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  MemoryState& state = shim_memory().state();
  Owner user;
  const CUresult result = call_real(real().cuCtxDisablePeerAccess, peer);
  if (result != CUDA_SUCCESS || current_owner(state.driver, &user) != CUDA_SUCCESS) return result;
  const std::unique_lock lock(state.mutex);
  state.peers.disable(user.context, peer);
  if (!state.peers.devices_for(peer).contains(user.device)) {
    set_access_to_all(state, peer, access_of(user.device, CU_MEM_ACCESS_FLAGS_PROT_NONE));
  }
  return result;
}

}  // namespace hook
}  // namespace ckpt::shim
