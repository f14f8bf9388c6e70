// SPDX-License-Identifier: Apache-2.0
#include "agent/gpus/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace ckpt::agent {

struct Nvml::Table {
  nvml::Return (*init)() = nullptr;
  nvml::Return (*shutdown)() = nullptr;
  const char* (*error_string)(nvml::Return) = nullptr;
  nvml::Return (*driver_version)(char*, unsigned) = nullptr;
  nvml::Return (*count)(unsigned*) = nullptr;
  nvml::Return (*by_index)(unsigned, nvml::Device*) = nullptr;
  nvml::Return (*uuid)(nvml::Device, char*, unsigned) = nullptr;
  nvml::Return (*name)(nvml::Device, char*, unsigned) = nullptr;
  nvml::Return (*memory)(nvml::Device, nvml::Memory*) = nullptr;
  // null if the library lacks this entry point
  nvml::Return (*pci_info)(nvml::Device, nvml::PciInfo*) = nullptr;
  // null if the library lacks this entry point
  nvml::Return (*field_values)(nvml::Device, int, nvml::FieldValue*) = nullptr;
  // null if the library lacks this entry point
  nvml::Return (*processes)(nvml::Device, unsigned*, nvml::ProcessInfo*) = nullptr;
};

namespace {

[[gnu::noinline]] Result<void*> find(void* library, const char* symbol) {
  void* found = ::dlsym(library, symbol);
  if (!found) return Error(ErrorCode::kNotSupported, std::string("The NVML library lacks ") + symbol);
  return found;
}

template <class Function>
Result<void> resolve(void* library, const char* symbol, Function* out) {
  CKPT_TRY(found, find(library, symbol));
  *out = reinterpret_cast<Function>(found);
  return ok();
}

template <class Function>
void resolve_optional(void* library, const char* symbol, Function* out) {
  *out = reinterpret_cast<Function>(::dlsym(library, symbol));
}

}  // namespace

Nvml::Nvml(void* library, std::unique_ptr<Table> table)
    : library_(library), table_(std::move(table)), topology_(library) {}

Nvml::~Nvml() {
  if (table_) table_->shutdown();
  // The library stays loaded, because a call that the watchdog abandoned may still run in the library.
}

Result<std::shared_ptr<Nvml>> Nvml::create(const std::string& library) {
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* reason = ::dlerror();
    return Error(ErrorCode::kNotSupported, "Cannot load " + library + ", so this node reports no GPUs: " +
                                               (reason ? reason : "unknown reason"));
  }
  auto table = std::make_unique<Table>();
  CKPT_TRYV(resolve(handle, "nvmlInit_v2", &table->init));
  CKPT_TRYV(resolve(handle, "nvmlShutdown", &table->shutdown));
  CKPT_TRYV(resolve(handle, "nvmlErrorString", &table->error_string));
  CKPT_TRYV(resolve(handle, "nvmlSystemGetDriverVersion", &table->driver_version));
  CKPT_TRYV(resolve(handle, "nvmlDeviceGetCount_v2", &table->count));
  CKPT_TRYV(resolve(handle, "nvmlDeviceGetHandleByIndex_v2", &table->by_index));
  CKPT_TRYV(resolve(handle, "nvmlDeviceGetUUID", &table->uuid));
  CKPT_TRYV(resolve(handle, "nvmlDeviceGetName", &table->name));
  CKPT_TRYV(resolve(handle, "nvmlDeviceGetMemoryInfo", &table->memory));
  resolve_optional(handle, "nvmlDeviceGetPciInfo_v3", &table->pci_info);
  resolve_optional(handle, "nvmlDeviceGetFieldValues", &table->field_values);
  resolve_optional(handle, "nvmlDeviceGetComputeRunningProcesses_v3", &table->processes);

  const nvml::Return code = table->init();
  if (code != nvml::kSuccess) {
    const char* text = table->error_string(code);
    return Error(ErrorCode::kUnavailable, ErrorDomain::kNvml, code,
                 std::string("nvmlInit_v2 failed: ") + (text ? text : "unknown"));
  }
  return std::shared_ptr<Nvml>(new Nvml(handle, std::move(table)));
}

Error Nvml::error(const char* call, nvml::Return code) const {
  const char* text = table_->error_string(code);
  const ErrorCode kind =
      code == nvml::kGpuIsLost || code == nvml::kResetRequired ? ErrorCode::kDevice : ErrorCode::kUnavailable;
  return Error(kind, ErrorDomain::kNvml, code, std::string(call) + " failed: " + (text ? text : "unknown"));
}

Result<GpuFacts> Nvml::read_gpu(std::uint32_t index) const {
  GpuFacts gpu;
  gpu.index = index;
  nvml::Device device = nullptr;
  if (auto rc = table_->by_index(index, &device); rc != nvml::kSuccess) {
    return error("nvmlDeviceGetHandleByIndex_v2", rc);
  }
  std::array<char, nvml::kUuidBufferBytes> uuid{};
  if (auto rc = table_->uuid(device, uuid.data(), uuid.size()); rc != nvml::kSuccess) {
    return error("nvmlDeviceGetUUID", rc);
  }
  gpu.uuid.assign(uuid.data(), ::strnlen(uuid.data(), uuid.size()));
  std::array<char, nvml::kNameBufferBytes> name{};
  if (auto rc = table_->name(device, name.data(), name.size()); rc != nvml::kSuccess) {
    return error("nvmlDeviceGetName", rc);
  }
  gpu.name.assign(name.data(), ::strnlen(name.data(), name.size()));
  CKPT_TRYV(read_memory(device, gpu));
  if (table_->pci_info) {
    nvml::PciInfo pci{};
    if (table_->pci_info(device, &pci) == nvml::kSuccess) {
      gpu.bus_id.assign(pci.bus_id, ::strnlen(pci.bus_id, sizeof pci.bus_id));
    }
  }
  if (table_->field_values) {
    nvml::FieldValue field{};
    field.field_id = nvml::kFieldRecoveryAction;
    // Drivers that do not know the field report an error in nvml_return. Such an error gives no information,
    // and does not mean "unhealthy".
    if (table_->field_values(device, 1, &field) == nvml::kSuccess && field.nvml_return == nvml::kSuccess) {
      gpu.recovery_action = field.value.as_u32;
    }
  }
  if (gpu.recovery_action != 0) {
    gpu.problem = "The driver requests recovery action " + std::to_string(gpu.recovery_action);
  }
  return gpu;
}

Result<void> Nvml::read_memory(nvml::Device device, GpuFacts& gpu) const {
  constexpr int kMaxReads = 4;
  bool of_one_moment = false;
  for (int i = 0; i < kMaxReads && !of_one_moment; i++) {
    nvml::Memory before{};
    nvml::Memory after{};
    if (auto rc = table_->memory(device, &before); rc != nvml::kSuccess)
      return error("nvmlDeviceGetMemoryInfo", rc);
    gpu.processes = read_processes(device);
    if (auto rc = table_->memory(device, &after); rc != nvml::kSuccess)
      return error("nvmlDeviceGetMemoryInfo", rc);
    gpu.total_bytes = after.total;
    gpu.free_bytes = after.free;
    of_one_moment = before.free == after.free;
  }
  return ok();
}

std::vector<GpuProcess> Nvml::read_processes(nvml::Device device) const {
  constexpr unsigned kMax = 1024;
  constexpr std::uint64_t kNotSaid = ~std::uint64_t{0};
  std::vector<GpuProcess> list;
  if (!table_->processes) return list;
  std::vector<nvml::ProcessInfo> infos(kMax);
  unsigned count = kMax;
  if (table_->processes(device, &count, infos.data()) != nvml::kSuccess) return list;
  infos.resize(std::min(count, kMax));
  for (const nvml::ProcessInfo& info : infos)
    list.emplace_back(static_cast<std::int32_t>(info.pid), info.used_bytes == kNotSaid ? 0 : info.used_bytes);
  return list;
}

Result<std::vector<GpuFacts>> Nvml::read_gpus() const {
  unsigned count = 0;
  if (auto rc = table_->count(&count); rc != nvml::kSuccess) return error("nvmlDeviceGetCount_v2", rc);
  std::vector<GpuFacts> gpus;
  for (unsigned i = 0; i < count; ++i) {
    auto gpu = read_gpu(i);
    if (gpu) {
      gpus.push_back(*std::move(gpu));
      continue;
    }
    GpuFacts silent;
    silent.index = i;
    silent.lost = true;
    silent.problem = gpu.error().to_string();
    gpus.push_back(std::move(silent));
  }
  add_topology(gpus);
  return gpus;
}

void Nvml::add_topology(std::vector<GpuFacts>& gpus) const {
  std::vector<GpuHandle> answering;
  std::vector<GpuFacts*> facts;
  for (GpuFacts& gpu : gpus) {
    nvml::Device device = nullptr;
    if (gpu.lost || table_->by_index(gpu.index, &device) != nvml::kSuccess) continue;
    answering.emplace_back(gpu.index, device, gpu.bus_id);
    facts.push_back(&gpu);
  }
  std::vector<GpuTopology> found = topology_.read(answering);
  for (std::size_t i = 0; i < facts.size(); ++i) facts[i]->topology = std::move(found[i]);
}

Result<std::string> Nvml::driver_version() const {
  std::array<char, nvml::kVersionBufferBytes> version{};
  if (auto rc = table_->driver_version(version.data(), version.size()); rc != nvml::kSuccess) {
    return error("nvmlSystemGetDriverVersion", rc);
  }
  return std::string(version.data(), ::strnlen(version.data(), version.size()));
}

}  // namespace ckpt::agent
