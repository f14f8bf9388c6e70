// SPDX-License-Identifier: Apache-2.0
// The part of NVML's binary interface that the software driver supports (API 13, x86-64). NVIDIA's header is
// not part of the toolkit's minimal installation, so this file declares the few layouts.
#pragma once

#include <cstdint>

namespace cudasim::nvml {

enum Return : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kTimeout = 10,
  kGpuIsLost = 15,
  kUnknown = 999,
};

enum EventType : std::uint64_t {
  kEventXidCritical = 0x8,
  kEventRecoveryAction = 0x8000,
};

struct EventData {
  void* device;
  std::uint64_t type;
  std::uint64_t data;
  std::uint32_t gpu_instance;
  std::uint32_t compute_instance;
};
static_assert(sizeof(EventData) == 32);

struct MemoryInfo {
  std::uint64_t total;
  std::uint64_t free;
  std::uint64_t used;
};

struct PciInfo {
  char bus_id_legacy[16];
  std::uint32_t domain;
  std::uint32_t bus;
  std::uint32_t device;
  std::uint32_t pci_device_id;
  std::uint32_t pci_subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(PciInfo) == 68);

struct FieldValue {
  std::uint32_t field;
  std::uint32_t scope;
  std::int64_t timestamp;
  std::int64_t latency_us;
  std::uint32_t value_type;
  std::int32_t result;
  union {
    double as_double;
    std::uint32_t as_u32;
    std::uint64_t as_u64;
  } value;
};
static_assert(sizeof(FieldValue) == 40);

struct ProcessInfo {
  std::uint32_t pid;
  std::uint64_t used_bytes;
  std::uint32_t gpu_instance;
  std::uint32_t compute_instance;
};
static_assert(sizeof(ProcessInfo) == 24);

}  // namespace cudasim::nvml
