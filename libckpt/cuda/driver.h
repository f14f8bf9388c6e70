// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, loaded with dlopen("libcuda.so.1"): one table of function pointers whose types come from
// cuda.h.
// Threads: the table is immutable after load; the driver's own rules apply to the calls. Ownership: the table
// is never destroyed. Errors: load fails with kNotSupported if there is no driver, or if the driver lacks a
// function, which the error names. Optional functions that the driver lacks are null.
#pragma once

#define __CUDA_API_VERSION_INTERNAL  // declares the _v2 names themselves instead of macros over them
#include <cuda.h>

#include <string>

#include "libckpt/base/result.h"

namespace ckpt {

struct DriverApi {
#define CKPT_CUDA(name) decltype(&::name) name = nullptr;
#define CKPT_CUDA_OPTIONAL(name) CKPT_CUDA(name)
#include "libckpt/cuda/driver_api.def"
#undef CKPT_CUDA
};

// Loads the driver once per process (thread-safe). Later calls return the same table. Does not call cuInit.
Result<const DriverApi*> load_driver();

// Returns the Error for a driver call: "what (CUDA n): NAME". Sticky errors (ECC, illegal address, device
// lost, ...) map to kDevice, CUDA_ERROR_OUT_OF_MEMORY to kOutOfMemory, every other result to the code with
// the closest meaning.
Error cuda_error(const DriverApi& api, CUresult result, std::string what);

// Returns whether the context is unusable after this result (CUDA's "sticky" errors).
[[nodiscard]] bool is_sticky(CUresult result) noexcept;

// A device with its primary context retained. Use ContextScope on each thread that calls the driver.
class Device {
 public:
  // Calls cuInit and retains the primary context of device `ordinal`.
  static Result<Device> open(int ordinal);
  Device(Device&&) noexcept;
  Device& operator=(Device&&) = delete;
  ~Device();

  [[nodiscard]] const DriverApi& api() const noexcept { return *api_; }
  [[nodiscard]] CUdevice device() const noexcept { return device_; }
  [[nodiscard]] CUcontext context() const noexcept { return context_; }
  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }

 private:
  Device(const DriverApi* api, int ordinal, CUdevice device, CUcontext context)
      : api_(api), ordinal_(ordinal), device_(device), context_(context) {}
  const DriverApi* api_;
  int ordinal_;
  CUdevice device_;
  CUcontext context_;
};

// A scope in which a context is current on the calling thread. Its end restores the former context.
class ContextScope {
 public:
  ContextScope(const DriverApi& api, CUcontext context) : api_(api) { api_.cuCtxPushCurrent_v2(context); }
  explicit ContextScope(const Device& device) : ContextScope(device.api(), device.context()) {}
  ~ContextScope() {
    CUcontext popped;
    api_.cuCtxPopCurrent_v2(&popped);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const DriverApi& api_;
};

}  // namespace ckpt

// CKPT_CUDA_TRY(api, cuMemFree_v2(ptr)): calls through the table. On failure it returns the Error, which
// names the call.
#define CKPT_CUDA_TRY(api, call)                                                                     \
  do {                                                                                               \
    const CUresult ckpt_cuda_result = (api).call;                                                    \
    if (ckpt_cuda_result != CUDA_SUCCESS) return ::ckpt::cuda_error((api), ckpt_cuda_result, #call); \
  } while (false)
