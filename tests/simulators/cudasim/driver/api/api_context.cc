// SPDX-License-Identifier: Apache-2.0
// Primary and other contexts, the current context, and peers.
#include "tests/simulators/cudasim/driver/api.h"
#include "tests/simulators/cudasim/driver/capture.h"
#include "tests/simulators/cudasim/driver/pool.h"

namespace cudasim {
namespace {

CUresult open_device_context(CUdevice device, unsigned flags, Context** context) {
  Process& process = Process::get();
  CUDASIM_TRY(process.ready());
  CUDASIM_CHECK(process.valid_device(device), CUDA_ERROR_INVALID_DEVICE);
  return process.open_context(device, flags, context);
}

CUresult create_context(CUcontext* out, unsigned flags, CUdevice device) {
  CUDASIM_CHECK(out != nullptr, CUDA_ERROR_INVALID_VALUE);
  Exclusive lock(Process::get().lock);
  Context* context = nullptr;
  CUDASIM_TRY(open_device_context(device, flags, &context));
  context_stack().push_back(context);
  *out = to_handle(context);
  return CUDA_SUCCESS;
}

CUresult primary_of(CUdevice device, Device** out) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(Process::get().valid_device(device), CUDA_ERROR_INVALID_DEVICE);
  *out = &Process::get().devices[static_cast<std::size_t>(device)];
  return CUDA_SUCCESS;
}

// A scope that ends captures with the contexts of their streams. Declare this object before the process's
// lock, so that it is destroyed after the lock is released.
struct EndsCaptures {
  EndsCaptures() = default;
  ~EndsCaptures() { end_dead_captures(); }
  EndsCaptures(const EndsCaptures&) = delete;
  EndsCaptures& operator=(const EndsCaptures&) = delete;
};

// Checks a handle from the program. Null is a valid "none" for some calls; any other handle must be alive.
CUresult check_context(CUcontext handle) {
  Shared lock(Process::get().lock);
  return Process::get().valid_context(from_handle(handle)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace
}  // namespace cudasim

namespace cudasim::api {

CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  CUDASIM_CHECK(out != nullptr, CUDA_ERROR_INVALID_VALUE);
  Exclusive lock(Process::get().lock);
  Device* entry = nullptr;
  CUDASIM_TRY(primary_of(device, &entry));
  if (entry->primary == nullptr)
    CUDASIM_TRY(open_device_context(device, entry->primary_flags, &entry->primary));
  entry->primary_users++;
  *out = to_handle(entry->primary);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  const EndsCaptures ends;
  Exclusive lock(Process::get().lock);
  Device* entry = nullptr;
  CUDASIM_TRY(primary_of(device, &entry));
  CUDASIM_CHECK(entry->primary_users > 0, CUDA_ERROR_INVALID_CONTEXT);
  if (--entry->primary_users > 0) return CUDA_SUCCESS;
  if (entry->primary != nullptr) Process::get().close_context(entry->primary);
  entry->primary = nullptr;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  const EndsCaptures ends;
  Exclusive lock(Process::get().lock);
  Device* entry = nullptr;
  CUDASIM_TRY(primary_of(device, &entry));
  if (entry->primary != nullptr) Process::get().close_context(entry->primary);
  entry->primary = nullptr;
  entry->primary_users = 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
  Exclusive lock(Process::get().lock);
  Device* entry = nullptr;
  CUDASIM_TRY(primary_of(device, &entry));
  entry->primary_flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  Shared lock(Process::get().lock);
  Device* entry = nullptr;
  CUDASIM_TRY(primary_of(device, &entry));
  CUDASIM_CHECK(flags != nullptr && active != nullptr, CUDA_ERROR_INVALID_VALUE);
  *flags = entry->primary_flags;
  *active = entry->primary != nullptr ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext* out, unsigned int flags, CUdevice device) {
  return create_context(out, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext* out, CUctxCreateParams* parameters, unsigned int flags, CUdevice device) {
  CUDASIM_CHECK(parameters == nullptr || parameters->numExecAffinityParams == 0, CUDA_ERROR_NOT_SUPPORTED);
  return create_context(out, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext handle) {
  CUDASIM_TRY(Process::get().ready());
  const EndsCaptures ends;
  Exclusive lock(Process::get().lock);
  Context* context = from_handle(handle);
  CUDASIM_CHECK(Process::get().valid_context(context), CUDA_ERROR_INVALID_CONTEXT);
  for (const Device& device : Process::get().devices) {
    CUDASIM_CHECK(device.primary != context, CUDA_ERROR_INVALID_CONTEXT);
  }
  Process::get().close_context(context);
  std::vector<Context*>& stack = context_stack();
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* out) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(out != nullptr, CUDA_ERROR_INVALID_VALUE);
  *out = context_stack().empty() ? nullptr : to_handle(context_stack().back());
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext handle) {
  CUDASIM_TRY(Process::get().ready());
  std::vector<Context*>& stack = context_stack();
  if (handle != nullptr) CUDASIM_TRY(check_context(handle));
  if (!stack.empty()) stack.pop_back();
  if (handle != nullptr) stack.push_back(from_handle(handle));
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext handle) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_TRY(check_context(handle));
  context_stack().push_back(from_handle(handle));
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* out) {
  CUDASIM_TRY(Process::get().ready());
  std::vector<Context*>& stack = context_stack();
  CUDASIM_CHECK(!stack.empty(), CUDA_ERROR_INVALID_CONTEXT);
  if (out != nullptr) *out = to_handle(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  Context* context = nullptr;
  CUDASIM_TRY(enter_any(&context));
  CUDASIM_CHECK(device != nullptr, CUDA_ERROR_INVALID_VALUE);
  *device = context->ordinal();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  Context* context = nullptr;
  CUDASIM_TRY(enter_any(&context));
  CUDASIM_CHECK(flags != nullptr, CUDA_ERROR_INVALID_VALUE);
  *flags = context->flags();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
  Context* context = nullptr;
  if (handle == nullptr) CUDASIM_TRY(enter_any(&context));
  if (handle != nullptr) CUDASIM_TRY(check_context(handle));
  CUDASIM_CHECK(id != nullptr, CUDA_ERROR_INVALID_VALUE);
  *id = static_cast<unsigned long long>((handle != nullptr ? from_handle(handle) : context)->number()) + 1;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext, unsigned int* version) {
  CUDASIM_CHECK(version != nullptr, CUDA_ERROR_INVALID_VALUE);
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam*, int count, unsigned int flags,
                        CUdevice device) {
  CUDASIM_CHECK(count == 0, CUDA_ERROR_NOT_SUPPORTED);
  return create_context(out, flags, device);
}

CUresult cuCtxSetFlags(unsigned int flags) {
  Context* context = nullptr;
  CUDASIM_TRY(enter_any(&context));
  CUDASIM_CHECK((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) == 0, CUDA_ERROR_INVALID_VALUE);
  context->set_flags(flags);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
  Context* context = nullptr;
  CUDASIM_TRY(enter_any(&context));
  CUDASIM_CHECK(config != nullptr, CUDA_ERROR_INVALID_VALUE);
  *config = CU_FUNC_CACHE_PREFER_NONE;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  Context* context = nullptr;
  CUDASIM_TRY(enter_any(&context));
  return config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCtxGetLimit(std::size_t* value, CUlimit limit) {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  CUDASIM_CHECK(value != nullptr && limit >= 0 && limit < CU_LIMIT_MAX, CUDA_ERROR_INVALID_VALUE);
  return context->get_limit(limit, value);
}

CUresult cuCtxSetLimit(CUlimit limit, std::size_t value) {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  CUDASIM_CHECK(limit >= 0 && limit < CU_LIMIT_MAX, CUDA_ERROR_INVALID_VALUE);
  return context->set_limit(limit, value);
}

CUresult cuCtxSynchronize() {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  CUDASIM_TRY(allow_synchronize(context));
  CUDASIM_TRY(context->synchronize());
  sweep_pools();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags) {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  CUDASIM_CHECK(flags == 0, CUDA_ERROR_INVALID_VALUE);
  Exclusive lock(Process::get().lock);
  Context* peer = from_handle(handle);
  CUDASIM_CHECK(Process::get().valid_context(peer), CUDA_ERROR_INVALID_CONTEXT);
  CUDASIM_CHECK(peer->ordinal() != context->ordinal(), CUDA_ERROR_INVALID_DEVICE);
  return Memory::get().enable_peer(context, peer);
}

CUresult cuCtxDisablePeerAccess(CUcontext handle) {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  Exclusive lock(Process::get().lock);
  CUDASIM_CHECK(Process::get().valid_context(from_handle(handle)), CUDA_ERROR_INVALID_CONTEXT);
  return Memory::get().disable_peer(context, from_handle(handle));
}

CUresult cuCtxSynchronize_v2(CUcontext handle) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_TRY(check_context(handle));
  CUDASIM_TRY(from_handle(handle)->error());
  CUDASIM_TRY(allow_synchronize(from_handle(handle)));
  CUDASIM_TRY(from_handle(handle)->synchronize());
  sweep_pools();
  return CUDA_SUCCESS;
}

// Calls the second version of the function. The first versions of these functions differ only by their
// results in obsolete driver versions.
CUresult cuCtxDestroy(CUcontext context) {
  return api::cuCtxDestroy_v2(context);
}

CUresult cuCtxPushCurrent(CUcontext context) {
  return api::cuCtxPushCurrent_v2(context);
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  return api::cuCtxPopCurrent_v2(context);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return api::cuDevicePrimaryCtxRelease_v2(device);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return api::cuDevicePrimaryCtxReset_v2(device);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  return api::cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

}  // namespace cudasim::api
