// SPDX-License-Identifier: Apache-2.0
#include "libckpt/cuda/driver.h"

#include <dlfcn.h>

#include <utility>

namespace ckpt {
namespace {

Result<const DriverApi*> load_driver_once() {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    return Error(ErrorCode::kNotSupported,
                 std::string("Cannot load the CUDA driver (libcuda.so.1): ") + ::dlerror());
  }
  static DriverApi api;
#define CKPT_CUDA(name)                                                     \
  api.name = reinterpret_cast<decltype(api.name)>(::dlsym(library, #name)); \
  if (api.name == nullptr) return Error(ErrorCode::kNotSupported, "The CUDA driver lacks " #name);
#define CKPT_CUDA_OPTIONAL(name) api.name = reinterpret_cast<decltype(api.name)>(::dlsym(library, #name));
#include "libckpt/cuda/driver_api.def"
#undef CKPT_CUDA
  return &api;
}

ErrorCode code_of(CUresult result) {
  if (is_sticky(result)) return ErrorCode::kDevice;
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return ErrorCode::kOutOfMemory;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_CONTEXT:
      return ErrorCode::kInvalidArgument;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_INVALID_PTX:
      return ErrorCode::kNotSupported;
    case CUDA_ERROR_NOT_FOUND:
    case CUDA_ERROR_FILE_NOT_FOUND:
      return ErrorCode::kNotFound;
    default:
      return ErrorCode::kInternal;
  }
}

}  // namespace

Result<const DriverApi*> load_driver() {
  static const Result<const DriverApi*> loaded = load_driver_once();
  return loaded;
}

bool is_sticky(CUresult result) noexcept {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_UNKNOWN:
      return true;
    default:
      return false;
  }
}

Error cuda_error(const DriverApi& api, CUresult result, std::string what) {
  const char* name = nullptr;
  if (api.cuGetErrorName != nullptr && api.cuGetErrorName(result, &name) == CUDA_SUCCESS && name != nullptr) {
    what += std::string(" failed with ") + name;
  } else {
    what += " failed";
  }
  return Error(code_of(result), ErrorDomain::kCuda, result, std::move(what));
}

Result<Device> Device::open(int ordinal) {
  CKPT_TRY(api, load_driver());
  CKPT_CUDA_TRY(*api, cuInit(0));
  CUdevice device = 0;
  CKPT_CUDA_TRY(*api, cuDeviceGet(&device, ordinal));
  CUcontext context = nullptr;
  CKPT_CUDA_TRY(*api, cuDevicePrimaryCtxRetain(&context, device));
  return Device(api, ordinal, device, context);
}

Device::Device(Device&& other) noexcept
    : api_(other.api_),
      ordinal_(other.ordinal_),
      device_(other.device_),
      context_(std::exchange(other.context_, nullptr)) {}

Device::~Device() {
  if (context_ != nullptr) api_->cuDevicePrimaryCtxRelease_v2(device_);
}

}  // namespace ckpt
