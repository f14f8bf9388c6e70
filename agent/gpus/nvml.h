// SPDX-License-Identifier: Apache-2.0
// The few NVML entry points that the agent uses, declared by the project (layouts: nvml.h API 13, x86-64).
// They are loaded at run time, so that the agent builds and starts on machines without a GPU.
// Threads: any, because NVML and this class are thread-safe. Calls may block for a long time when a driver
// hangs. Never call them on the event loop (see Inventory). Errors: kNotSupported if the library or an entry
// point is missing, kDevice if the GPU is lost, kUnavailable otherwise. The native code is nvmlReturn_t.
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
inline constexpr std::uint32_t kFieldVolatileCorrected = 3;  // number of the field for single-bit errors of
                                                             // GPU memory
inline constexpr std::uint32_t kFieldVolatileUncorrected = 4;
inline constexpr std::uint32_t kFieldAggregateCorrected = 5;
inline constexpr std::uint32_t kFieldAggregateUncorrected = 6;
inline constexpr std::uint32_t kFieldRecoveryAction = 230;
inline constexpr std::uint32_t kValueU32 = 1;  // value of FieldValue::value_type for a 32-bit number
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

// The layout of nvmlProcessInfo_t. If all bits of `bytes` are ones, the number is unknown.
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
  std::int32_t pid = 0;     // the process's pid as the driver reports it
  std::uint64_t bytes = 0;  // GPU memory of the process; also 0 if the driver does not report it
};

struct GpuFacts {
  std::uint32_t index = 0;
  std::string uuid;
  std::string name;
  std::string bus_id;
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  // NVML field 230: 0 none, 1 reset the GPU, 2 reboot, 3 drain peer-to-peer, 4 drain and reset. An unknown
  // value counts as 0.
  std::uint32_t recovery_action = 0;
  bool lost = false;                  // true if the driver no longer reaches the GPU
  std::string problem;                // the reason why the GPU is not healthy; empty if it is healthy
  std::vector<GpuProcess> processes;  // processes with a compute context
  GpuTopology topology;               // the GPU's topology; empty if the GPU is lost
};

class Nvml {
 public:
  // Loads `library`, resolves the table of entry points and calls nvmlInit.
  static Result<std::shared_ptr<Nvml>> create(const std::string& library);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Returns the current facts of every GPU. A GPU that does not answer is listed with `lost` set and the
  // error in `problem`.
  [[nodiscard]] Result<std::vector<GpuFacts>> read_gpus() const;
  [[nodiscard]] Result<std::string> driver_version() const;

 private:
  struct Table;
  Nvml(void* library, std::unique_ptr<Table> table);
  void add_topology(std::vector<GpuFacts>& gpus) const;
  [[nodiscard]] Error error(const char* call, nvml::Return code) const;
  [[nodiscard]] Result<GpuFacts> read_gpu(std::uint32_t index) const;
  // Reads free memory and processes, and repeats this a few times while the free memory changes. Placement
  // adds the free memory and the memory of processes. Memory that a process allocates between the two queries
  // would be in neither.
  Result<void> read_memory(nvml::Device device, GpuFacts& gpu) const;
  [[nodiscard]] std::vector<GpuProcess> read_processes(nvml::Device device) const;

  void* library_;
  std::unique_ptr<Table> table_;
  NvmlTopology topology_;
};

}  // namespace ckpt::agent
