// SPDX-License-Identifier: Apache-2.0
#include "agent/health_helper/nvml_watch.h"

#include <dlfcn.h>

#include <array>
#include <cstring>

#include "libckpt/net/control/log.h"

namespace ckpt::health_helper {
namespace {

constexpr nvml::Return kTimeout = 10;
constexpr std::uint64_t kXidCritical = 0x8;
constexpr std::uint64_t kWanted = 0x2 | kXidCritical | 0x400 | 0x800 | 0x1000 | 0x2000 | 0x4000 | 0x8000;

// The layout of nvmlEventData_t.
struct EventData {
  nvml::Device device;
  std::uint64_t type;
  std::uint64_t data;
  std::uint32_t gpu_instance;
  std::uint32_t compute_instance;
};
static_assert(sizeof(EventData) == 32 && offsetof(EventData, type) == 8 && offsetof(EventData, data) == 16 &&
              offsetof(EventData, gpu_instance) == 24);

}  // namespace

struct NvmlWatch::Table {
  nvml::Return (*init)() = nullptr;
  const char* (*error_string)(nvml::Return) = nullptr;
  nvml::Return (*count)(unsigned*) = nullptr;
  nvml::Return (*by_index)(unsigned, nvml::Device*) = nullptr;
  nvml::Return (*uuid)(nvml::Device, char*, unsigned) = nullptr;
  nvml::Return (*name)(nvml::Device, char*, unsigned) = nullptr;
  nvml::Return (*pci_info)(nvml::Device, nvml::PciInfo*) = nullptr;
  nvml::Return (*field_values)(nvml::Device, int, nvml::FieldValue*) = nullptr;
  nvml::Return (*remapped_rows)(nvml::Device, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  nvml::Return (*supported_events)(nvml::Device, unsigned long long*) = nullptr;
  nvml::Return (*make_set)(void**) = nullptr;
  nvml::Return (*free_set)(void*) = nullptr;
  nvml::Return (*register_events)(nvml::Device, unsigned long long, void*) = nullptr;
  nvml::Return (*wait)(void*, EventData*, unsigned) = nullptr;
};

namespace {

template <class Function>
bool resolve(void* library, const char* symbol, Function* out) {
  *out = reinterpret_cast<Function>(::dlsym(library, symbol));
  return *out != nullptr;
}

// Reads a counter. Returns false if the driver does not report it.
bool read_count(const nvml::FieldValue& field, std::uint64_t& out) {
  if (field.nvml_return != nvml::kSuccess) return false;
  if (field.value_type == nvml::kValueU32) {
    out = field.value.as_u32;
    return true;
  }
  out = field.value.as_u64;
  return field.value_type == nvml::kValueU64 || field.value_type == nvml::kValueUlong;
}

Error missing(const char* symbol) {
  return Error(ErrorCode::kNotSupported, std::string("The NVML library lacks ") + symbol);
}

template <std::size_t N>
std::string text_of(const std::array<char, N>& text) {
  return std::string(text.data(), ::strnlen(text.data(), N));
}

}  // namespace

NvmlWatch::NvmlWatch(void* library, std::unique_ptr<Table> table)
    : library_(library), table_(std::move(table)) {}

NvmlWatch::~NvmlWatch() {
  if (set_ != nullptr) table_->free_set(set_);
}

Result<std::unique_ptr<NvmlWatch>> NvmlWatch::create(const std::string& library) {
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    return Error(ErrorCode::kNotSupported,
                 "Cannot load " + library + ": " + (reason != nullptr ? reason : "unknown reason"));
  }
  auto table = std::make_unique<Table>();
  if (!resolve(handle, "nvmlInit_v2", &table->init)) return missing("nvmlInit_v2");
  if (!resolve(handle, "nvmlErrorString", &table->error_string)) return missing("nvmlErrorString");
  if (!resolve(handle, "nvmlDeviceGetCount_v2", &table->count)) return missing("nvmlDeviceGetCount_v2");
  if (!resolve(handle, "nvmlDeviceGetHandleByIndex_v2", &table->by_index))
    return missing("nvmlDeviceGetHandleByIndex_v2");
  if (!resolve(handle, "nvmlDeviceGetUUID", &table->uuid)) return missing("nvmlDeviceGetUUID");
  if (!resolve(handle, "nvmlDeviceGetName", &table->name)) return missing("nvmlDeviceGetName");
  if (!resolve(handle, "nvmlDeviceGetPciInfo_v3", &table->pci_info))
    return missing("nvmlDeviceGetPciInfo_v3");
  resolve(handle, "nvmlDeviceGetFieldValues", &table->field_values);
  resolve(handle, "nvmlDeviceGetRemappedRows", &table->remapped_rows);
  resolve(handle, "nvmlDeviceGetSupportedEventTypes", &table->supported_events);
  resolve(handle, "nvmlDeviceRegisterEvents", &table->register_events);
  resolve(handle, "nvmlEventSetCreate", &table->make_set);
  resolve(handle, "nvmlEventSetFree", &table->free_set);
  if (!resolve(handle, "nvmlEventSetWait_v2", &table->wait))
    resolve(handle, "nvmlEventSetWait", &table->wait);
  std::unique_ptr<NvmlWatch> watch(new NvmlWatch(handle, std::move(table)));
  if (const auto code = watch->table_->init(); code != nvml::kSuccess)
    return watch->error("nvmlInit_v2", code);
  CKPT_TRYV(watch->find_gpus());
  return watch;
}

Error NvmlWatch::error(const char* call, nvml::Return code) const {
  const char* text = table_->error_string(code);
  return Error(ErrorCode::kUnavailable, ErrorDomain::kNvml, code,
               std::string(call) + " failed: " + (text != nullptr ? text : "unknown"));
}

Result<void> NvmlWatch::find_gpus() {
  unsigned count = 0;
  if (const auto code = table_->count(&count); code != nvml::kSuccess)
    return error("nvmlDeviceGetCount_v2", code);
  for (unsigned i = 0; i < count && i < messages::kMaxGpus; ++i) {
    nvml::Device device = nullptr;
    std::array<char, nvml::kUuidBufferBytes> uuid{};
    std::array<char, nvml::kNameBufferBytes> name{};
    nvml::PciInfo pci{};
    // A GPU that is already lost has no name. It keeps its index, and its state is kLost.
    const bool named = table_->by_index(i, &device) == nvml::kSuccess &&
                       table_->uuid(device, uuid.data(), uuid.size()) == nvml::kSuccess &&
                       table_->name(device, name.data(), name.size()) == nvml::kSuccess &&
                       table_->pci_info(device, &pci) == nvml::kSuccess;
    messages::Report gpu;
    gpu.kind = messages::Kind::kGpu;
    gpu.gpu = i;
    if (named)
      messages::set_text(gpu, text_of(uuid) + " " +
                                  std::string(pci.bus_id, ::strnlen(pci.bus_id, sizeof pci.bus_id)) + " " +
                                  text_of(name));
    devices_.push_back(device);
    gpus_.push_back(gpu);
  }
  return ok();
}

Result<void> NvmlWatch::register_events() {
  registered_ = 0;
  if (!table_->make_set || !table_->free_set || !table_->register_events || !table_->wait ||
      !table_->supported_events)
    return Error(ErrorCode::kNotSupported, "This NVML library does not support events");
  if (set_ != nullptr) table_->free_set(set_);
  set_ = nullptr;
  if (const auto code = table_->make_set(&set_); code != nvml::kSuccess) {
    set_ = nullptr;
    return error("nvmlEventSetCreate", code);
  }
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    unsigned long long supported = 0;
    if (devices_[i] == nullptr || table_->supported_events(devices_[i], &supported) != nvml::kSuccess)
      continue;
    const auto code = table_->register_events(devices_[i], supported & kWanted, set_);
    if (code == nvml::kSuccess) {
      ++registered_;
    } else {
      // The GPU cannot report events. This is not evidence about its health.
      spdlog::warn("NVML events unavailable: gpu {} reason {}", i,
                   error("nvmlDeviceRegisterEvents", code).to_string());
    }
  }
  return ok();
}

messages::Report NvmlWatch::state(std::uint32_t gpu) const {
  messages::Report report;
  report.kind = messages::Kind::kState;
  report.gpu = gpu;
  if (devices_[gpu] == nullptr) {
    report.flags = messages::kLost;
    return report;
  }
  const nvml::Return fields = read_fields(devices_[gpu], report);
  const nvml::Return rows = read_rows(devices_[gpu], report);
  if (fields == nvml::kGpuIsLost || rows == nvml::kGpuIsLost) report.flags |= messages::kLost;
  return report;
}

// Reads all fields with one call. Each field has its own status, because a GPU may lack a field. Examples are
// a GPU without ECC memory, and an older driver.
nvml::Return NvmlWatch::read_fields(nvml::Device device, messages::Report& report) const {
  constexpr std::array kFields = {nvml::kFieldRecoveryAction, nvml::kFieldVolatileCorrected,
                                  nvml::kFieldVolatileUncorrected, nvml::kFieldAggregateCorrected,
                                  nvml::kFieldAggregateUncorrected};
  if (!table_->field_values) return nvml::kNotSupported;
  std::array<nvml::FieldValue, kFields.size()> values{};
  for (std::size_t i = 0; i < kFields.size(); ++i) values[i].field_id = kFields[i];
  const nvml::Return code = table_->field_values(device, static_cast<int>(values.size()), values.data());
  if (code != nvml::kSuccess) return code;
  if (values[0].nvml_return == nvml::kSuccess) {
    report.flags |= messages::kRecoveryKnown;
    report.recovery = values[0].value.as_u32;
  }
  messages::Counters& counters = report.counters;
  if (read_count(values[1], counters.volatile_corrected) &&
      read_count(values[2], counters.volatile_uncorrected))
    report.flags |= messages::kVolatileKnown;
  if (read_count(values[3], counters.aggregate_corrected) &&
      read_count(values[4], counters.aggregate_uncorrected))
    report.flags |= messages::kAggregateKnown;
  return code;
}

nvml::Return NvmlWatch::read_rows(nvml::Device device, messages::Report& report) const {
  if (!table_->remapped_rows) return nvml::kNotSupported;
  unsigned corrected = 0;
  unsigned uncorrected = 0;
  unsigned pending = 0;
  unsigned failed = 0;
  const nvml::Return code = table_->remapped_rows(device, &corrected, &uncorrected, &pending, &failed);
  if (code != nvml::kSuccess) return code;
  report.flags |= messages::kRowsKnown;
  if (pending != 0) report.flags |= messages::kRemapPending;
  if (failed != 0) report.flags |= messages::kRemapFailed;
  report.counters.rows_corrected = corrected;
  report.counters.rows_uncorrected = uncorrected;
  return code;
}

NvmlWatch::Woken NvmlWatch::wait(std::uint32_t timeout_ms, messages::Report* report) {
  EventData event{};
  const auto code = table_->wait(set_, &event, timeout_ms);
  if (code == kTimeout) return Woken::kTimeout;
  if (code != nvml::kSuccess) {
    spdlog::warn("{}", error("nvmlEventSetWait", code).to_string());
    return Woken::kBroken;
  }
  *report = messages::Report{};
  report->kind = messages::Kind::kState;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i] == event.device) report->gpu = static_cast<std::uint32_t>(i);
  }
  if (event.type == kXidCritical && event.data != 0) {
    report->kind = messages::Kind::kXid;
    report->xid =
        static_cast<std::uint32_t>(event.data <= messages::kMaxXid ? event.data : messages::kMaxXid);
  }
  return Woken::kEvent;
}

}  // namespace ckpt::health_helper
