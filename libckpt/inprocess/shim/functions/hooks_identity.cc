// SPDX-License-Identifier: Apache-2.0
// Hooks of identities. After a move the program's devices answer as their current GPUs (job_state.h),
// whatever the driver remembers.
#include <cstdio>
#include <cstring>

#include "libckpt/inprocess/shim/core/hooks.h"
#include "libckpt/inprocess/shim/core/job_state.h"

namespace ckpt::shim {
namespace {

constexpr int kBusIdBytes = 13;  // the length of "0000:3B:00.0" and its terminating zero; the driver refuses
                                 // a shorter buffer

CUresult answer_uuid(CUresult result, CUuuid* uuid, CUdevice device) {
  if (result != CUDA_SUCCESS) return result;
  if (const auto identity = identity_of(device))
    std::memcpy(uuid->bytes, identity->uuid.data(), sizeof uuid->bytes);
  return result;
}

}  // namespace

namespace hook {

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return answer_uuid(real().cuDeviceGetUuid(uuid, device), uuid, device);
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return answer_uuid(real().cuDeviceGetUuid_v2(uuid, device), uuid, device);
}

CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
  const CUresult result = real().cuDeviceGetPCIBusId(id, length, device);
  const auto identity = identity_of(device);
  if (result != CUDA_SUCCESS || !identity || length < kBusIdBytes) return result;
  std::snprintf(id, static_cast<std::size_t>(length), "%04X:%02X:%02X.0",
                static_cast<unsigned>(identity->pci_domain), static_cast<unsigned>(identity->pci_bus),
                static_cast<unsigned>(identity->pci_device));
  return result;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* id) {
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned slot = 0;
  if (device == nullptr || id == nullptr || std::sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3) {
    return real().cuDeviceGetByPCIBusId(device, id);
  }
  for (CUdevice candidate = 0; candidate < kMaxDevices; ++candidate) {
    const auto identity = identity_of(candidate);
    if (!identity || identity->pci_domain != static_cast<int>(domain) ||
        identity->pci_bus != static_cast<int>(bus) || identity->pci_device != static_cast<int>(slot)) {
      continue;
    }
    *device = candidate;
    return CUDA_SUCCESS;
  }
  return real().cuDeviceGetByPCIBusId(device, id);
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  const CUresult result = real().cuDeviceGetAttribute(value, attribute, device);
  if (result != CUDA_SUCCESS) return result;
  if (attribute != CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID && attribute != CU_DEVICE_ATTRIBUTE_PCI_BUS_ID &&
      attribute != CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID) {
    return result;
  }
  const auto identity = identity_of(device);
  if (!identity) return result;
  *value = attribute == CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID ? identity->pci_domain
           : attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID  ? identity->pci_bus
                                                          : identity->pci_device;
  return result;
}

}  // namespace hook
}  // namespace ckpt::shim
