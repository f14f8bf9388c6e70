// SPDX-License-Identifier: Apache-2.0
// Initialization, errors and devices.
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/simulators/cudasim/driver/api.h"

namespace cudasim {
namespace {

constexpr int kPciBusBase = 0x10;

int attribute_of(CUdevice_attribute attribute, const Device& device) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      return 1;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      return 0x7fffffff;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return 48 * 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return 227 * 1024;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return 32;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      return 1000000;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return 1;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return 2048;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      return 1000000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      return 64;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return kPciBusBase + device.shown_physical;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return 9;
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
      return 1;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      return 32;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
      return 32;
    default:
      return 0;
  }
}

CUresult check_device(CUdevice device) {
  CUDASIM_TRY(Process::get().ready());
  return Process::get().valid_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

Device& device_of(CUdevice device) {
  return Process::get().devices[static_cast<std::size_t>(device)];
}

struct ErrorName {
  CUresult result;
  const char* name;
  const char* text;
};
constexpr ErrorName kErrorNames[] = {
#define CUDASIM_ERROR(name, text) {name, #name, text},
#include "tests/simulators/cudasim/driver/api/error_names.def"
#undef CUDASIM_ERROR
};

const ErrorName* find_error(CUresult result) {
  for (const ErrorName& entry : kErrorNames) {
    if (entry.result == result) return &entry;
  }
  return nullptr;
}

}  // namespace
}  // namespace cudasim

namespace cudasim::api {

CUresult cuInit(unsigned int flags) {
  CUDASIM_CHECK(flags == 0, CUDA_ERROR_INVALID_VALUE);
  return Process::get().initialize();
}

CUresult cuDriverGetVersion(int* version) {
  CUDASIM_CHECK(version != nullptr, CUDA_ERROR_INVALID_VALUE);
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  CUDASIM_CHECK(name != nullptr, CUDA_ERROR_INVALID_VALUE);
  const ErrorName* found = find_error(error);
  *name = found != nullptr ? found->name : nullptr;
  return found != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  CUDASIM_CHECK(text != nullptr, CUDA_ERROR_INVALID_VALUE);
  const ErrorName* found = find_error(error);
  *text = found != nullptr ? found->text : nullptr;
  return found != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetCount(int* count) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(count != nullptr, CUDA_ERROR_INVALID_VALUE);
  *count = static_cast<int>(Process::get().devices.size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  CUDASIM_TRY(check_device(ordinal));
  CUDASIM_CHECK(device != nullptr, CUDA_ERROR_INVALID_VALUE);
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  CUDASIM_TRY(check_device(device));
  CUDASIM_CHECK(name != nullptr && length > 0, CUDA_ERROR_INVALID_VALUE);
  std::snprintf(name, static_cast<std::size_t>(length), "%s", settings().name.c_str());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  CUDASIM_TRY(check_device(device));
  CUDASIM_CHECK(uuid != nullptr, CUDA_ERROR_INVALID_VALUE);
  std::memcpy(uuid->bytes, device_of(device).shown_uuid.bytes, sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return api::cuDeviceGetUuid_v2(uuid, device);
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  CUDASIM_TRY(check_device(device));
  CUDASIM_CHECK(value != nullptr && attribute > 0 && attribute < CU_DEVICE_ATTRIBUTE_MAX,
                CUDA_ERROR_INVALID_VALUE);
  *value = attribute_of(attribute, device_of(device));
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  CUDASIM_TRY(check_device(device));
  CUDASIM_CHECK(major != nullptr && minor != nullptr, CUDA_ERROR_INVALID_VALUE);
  *major = attribute_of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device_of(device));
  *minor = attribute_of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device_of(device));
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  CUDASIM_TRY(check_device(device));
  CUDASIM_CHECK(bytes != nullptr, CUDA_ERROR_INVALID_VALUE);
  *bytes = device_of(device).card->state().configured_memory;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
  CUDASIM_TRY(check_device(device));
  CUDASIM_CHECK(id != nullptr && length >= 13, CUDA_ERROR_INVALID_VALUE);
  std::snprintf(id, static_cast<std::size_t>(length), "0000:%02X:00.0",
                kPciBusBase + device_of(device).shown_physical);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* id) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(device != nullptr && id != nullptr, CUDA_ERROR_INVALID_VALUE);
  const char* bus = std::strchr(id, ':');
  unsigned domain = 0;
  unsigned number = 0;
  const bool full = bus != nullptr && std::sscanf(id, "%x:%x:", &domain, &number) == 2 && domain == 0;
  const std::vector<Device>& devices = Process::get().devices;
  for (std::size_t i = 0; full && i < devices.size(); i++) {
    if (devices[i].shown_physical != static_cast<int>(number) - kPciBusBase) continue;
    *device = static_cast<CUdevice>(i);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  CUDASIM_TRY(check_device(device));
  CUDASIM_TRY(check_device(peer));
  CUDASIM_CHECK(can != nullptr, CUDA_ERROR_INVALID_VALUE);
  *can = device != peer ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice device,
                                 CUdevice peer) {
  CUDASIM_TRY(check_device(device));
  CUDASIM_TRY(check_device(peer));
  CUDASIM_CHECK(value != nullptr && device != peer, CUDA_ERROR_INVALID_VALUE);
  *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // namespace cudasim::api
