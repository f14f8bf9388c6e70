// SPDX-License-Identifier: Apache-2.0
// The few NVML entry points the agent uses, declared by the project (layouts: nvml.h API 13, x86-64). They
// are loaded at run time, so that the agent builds and starts on machines without a GPU. Threads: NVML is
// thread-safe, so is this. Calls may block for long when a driver is wedged: never call them on the event
// loop (see Inventory). Errors: kNotSupported when the library or an entry point is missing, kDevice when the
// GPU is lost, kUnavailable otherwise; the native code is nvmlReturn_t.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/gpus/nvml_topology.h"
#include "libckpt/base/result.h"

namespace ckpt::agent {

namespace nvml {

using Return = int;
using Device = struct DeviceOpaque*;
inline constexpr Return kSuccess = 0;
inline constexpr Return kNotSupported = 3;
inline constexpr Return kFunctionNotFound = 13;
inline constexpr Return kGpuIsLost = 15;
inline constexpr Return kResetRequired = 16;

inline constexpr unsigned kUuidBufferBytes = 96;
inline constexpr unsigned kNameBufferBytes = 96;
inline constexpr unsigned kVersionBufferBytes = 80;
inline constexpr std::uint32_t kFieldVolatileCorrected = 3;  // single-bit errors of memory
inline constexpr std::uint32_t kFieldVolatileUncorrected = 4;
inline constexpr std::uint32_t kFieldAggregateCorrected = 5;
inline constexpr std::uint32_t kFieldAggregateUncorrected = 6;
inline constexpr std::uint32_t kFieldRecoveryAction = 230;
inline constexpr std::uint32_t kValueU32 = 1;  // of FieldValue::value_type
inline constexpr std::uint32_t kValueUlong = 2;
inline constexpr std::uint32_t kValueU64 = 3;

struct Memory {
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

struct FieldValue {
  std::uint32_t field_id;
  std::uint32_t scope_id;
  std::int64_t timestamp;
  std::int64_t latency_usec;
  std::uint32_t value_type;
  Return nvml_return;
  union {
    double as_double;
    std::uint32_t as_u32;
    std::uint64_t as_u64;
  } value;
};

// nvmlProcessInfo_t; bytes of all ones: not known.
struct ProcessInfo {
  std::uint32_t pid;
  std::uint64_t used_bytes;
  std::uint32_t gpu_instance;
  std::uint32_t compute_instance;
};

static_assert(sizeof(ProcessInfo) == 24 && offsetof(ProcessInfo, used_bytes) == 8);
static_assert(sizeof(Memory) == 24 && offsetof(Memory, free) == 8 && offsetof(Memory, used) == 16);
static_assert(sizeof(PciInfo) == 68 && offsetof(PciInfo, domain) == 16 && offsetof(PciInfo, bus_id) == 36);
static_assert(sizeof(FieldValue) == 40 && offsetof(FieldValue, timestamp) == 8 &&
              offsetof(FieldValue, value_type) == 24 && offsetof(FieldValue, nvml_return) == 28 &&
              offsetof(FieldValue, value) == 32);

}  // namespace nvml

struct GpuProcess {
  GpuProcess() = default;
  GpuProcess(std::int32_t process, std::uint64_t used) : pid(process), bytes(used) {}
  std::int32_t pid = 0;     // the driver's number for it
  std::uint64_t bytes = 0;  // 0 also where the driver does not report it
};

struct GpuFacts {
  std::uint32_t index = 0;
  std::string uuid;
  std::string name;
  std::string bus_id;
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  // NVML field 230: 0 none, 1 reset the GPU, 2 reboot, 3 drain peer-to-peer, 4 drain and reset; unknown
  // counts as 0.
  std::uint32_t recovery_action = 0;
  bool lost = false;                  // the driver no longer reaches it
  std::string complaint;              // why it is not healthy; empty if it is
  std::vector<GpuProcess> processes;  // those that have a compute context
  GpuTopology topology;               // of one that is lost: nothing
};

class Nvml {
 public:
  // Loads `library`, resolves the table and calls nvmlInit.
  static Result<std::shared_ptr<Nvml>> create(const std::string& library);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Every GPU as it is now. One that does not answer is listed with `lost` and a complaint.
  [[nodiscard]] Result<std::vector<GpuFacts>> read_gpus() const;
  [[nodiscard]] Result<std::string> driver_version() const;

 private:
  struct Table;
  Nvml(void* library, std::unique_ptr<Table> table);
  void add_topology(std::vector<GpuFacts>& gpus) const;
  [[nodiscard]] Error error(const char* call, nvml::Return code) const;
  [[nodiscard]] Result<GpuFacts> read_gpu(std::uint32_t index) const;
  // Reads free memory and processes of one moment, unless they change all the time. Placement adds the two
  // up, and memory that a process takes between two answers would be in neither.
  Result<void> read_memory(nvml::Device device, GpuFacts& gpu) const;
  [[nodiscard]] std::vector<GpuProcess> read_processes(nvml::Device device) const;

  void* library_;
  std::unique_ptr<Table> table_;
  NvmlTopology topology_;
};

}  // namespace ckpt::agent
