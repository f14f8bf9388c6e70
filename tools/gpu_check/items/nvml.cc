// SPDX-License-Identifier: Apache-2.0
// The item nvml. It checks which health signals NVML provides here: event types, recovery action, remapped
// rows. It queries the first GPU. "Not supported" is also a valid answer.
#include <dlfcn.h>

#include "agent/gpus/nvml.h"
#include "tools/gpu_check/item.h"

namespace ckpt::gpu_check {
namespace {

namespace nvml = agent::nvml;

constexpr nvml::Return kTimeout = 10;
constexpr unsigned kWaitMs = 200;
constexpr std::uint64_t kXidCritical = 0x8;

struct EventName {
  std::uint64_t bit;
  const char* name;
};
constexpr EventName kEvents[] = {{0x1, "SingleBitEcc"},
                                 {0x2, "DoubleBitEcc"},
                                 {0x4, "PState"},
                                 {kXidCritical, "XidCritical"},
                                 {0x10, "Clock"},
                                 {0x80, "PowerSource"},
                                 {0x100, "MigConfig"},
                                 {0x200, "SingleBitEccStorm"},
                                 {0x400, "DramRetirement"},
                                 {0x800, "DramRetirementFailure"},
                                 {0x1000, "NonFatalPoison"},
                                 {0x2000, "FatalPoison"},
                                 {0x4000, "GpuUnavailable"},
                                 {0x8000, "GpuRecoveryAction"}};

struct FieldName {
  std::uint32_t id;
  const char* name;
};
constexpr FieldName kFields[] = {{142, "remapped_correctable"},
                                 {143, "remapped_uncorrectable"},
                                 {144, "remap_pending"},
                                 {145, "remap_failure"},
                                 {nvml::kFieldRecoveryAction, "recovery_action"}};

struct EventData {
  nvml::Device device;
  std::uint64_t type;
  std::uint64_t data;
  std::uint32_t gpu_instance;
  std::uint32_t compute_instance;
};
static_assert(sizeof(EventData) == 32);

using EventSet = struct EventSetOpaque*;

// The entry points of NVML that the agent does not use. A driver may lack any of them.
struct Functions {
  explicit Functions(void* library) {
    find(library, "nvmlDeviceGetHandleByIndex_v2", by_index);
    find(library, "nvmlErrorString", error_string);
    find(library, "nvmlDeviceGetFieldValues", field_values);
    find(library, "nvmlDeviceGetRemappedRows", remapped_rows);
    find(library, "nvmlDeviceGetSupportedEventTypes", event_types);
    find(library, "nvmlEventSetCreate", create_set);
    find(library, "nvmlEventSetFree", free_set);
    find(library, "nvmlDeviceRegisterEvents", register_events);
    find(library, "nvmlEventSetWait_v2", wait_for_event);
  }
  template <class Function>
  static void find(void* library, const char* name, Function& out) {
    out = reinterpret_cast<Function>(::dlsym(library, name));
  }
  nvml::Return (*by_index)(unsigned, nvml::Device*) = nullptr;
  const char* (*error_string)(nvml::Return) = nullptr;
  nvml::Return (*field_values)(nvml::Device, int, nvml::FieldValue*) = nullptr;
  nvml::Return (*remapped_rows)(nvml::Device, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  nvml::Return (*event_types)(nvml::Device, unsigned long long*) = nullptr;
  nvml::Return (*create_set)(EventSet*) = nullptr;
  nvml::Return (*free_set)(EventSet) = nullptr;
  nvml::Return (*register_events)(nvml::Device, unsigned long long, EventSet) = nullptr;
  nvml::Return (*wait_for_event)(EventSet, EventData*, unsigned) = nullptr;
};

class Questions {
 public:
  Questions(const Functions& functions, nvml::Device device, Outcome& outcome)
      : functions_(functions), device_(device), outcome_(outcome) {}

  void ask_events();
  void ask_fields();
  void ask_remapped_rows();

 private:
  // Returns whether the call succeeded. After a failure, adds `part` to the outcome, as failed or as not
  // possible here.
  bool succeeded(const std::string& part, nvml::Return code);
  void register_and_wait(std::uint64_t types);

  const Functions& functions_;
  nvml::Device device_;
  Outcome& outcome_;
};

bool Questions::succeeded(const std::string& part, nvml::Return code) {
  if (code == nvml::kSuccess) return true;
  const char* text = functions_.error_string != nullptr ? functions_.error_string(code) : nullptr;
  const bool unknown_here = code == nvml::kNotSupported || code == nvml::kFunctionNotFound;
  outcome_.add(part, unknown_here ? Status::kImpossible : Status::kFailed,
               text != nullptr ? text : "NVML error " + std::to_string(code));
  return false;
}

void Questions::ask_events() {
  if (functions_.event_types == nullptr || functions_.create_set == nullptr ||
      functions_.free_set == nullptr || functions_.register_events == nullptr ||
      functions_.wait_for_event == nullptr) {
    outcome_.add("event types", Status::kImpossible, "this NVML lacks the functions");
    return;
  }
  unsigned long long types = 0;
  if (!succeeded("event types", functions_.event_types(device_, &types))) return;
  Json names = Json::array();
  for (const EventName& event : kEvents) {
    if ((types & event.bit) != 0) names.push_back(event.name);
  }
  outcome_.figures["event_types"] = names;
  outcome_.figures["event_mask"] = types;
  if ((types & kXidCritical) == 0) {
    outcome_.add("event types", Status::kImpossible, "XidCritical is not among the event types");
    return;
  }
  outcome_.add("event types", Status::kPassed);
  register_and_wait(types);
}

// Waits for events to check that waiting works. No event is expected.
void Questions::register_and_wait(std::uint64_t types) {
  EventSet set = nullptr;
  if (!succeeded("waiting for events", functions_.create_set(&set))) return;
  if (succeeded("waiting for events", functions_.register_events(device_, types, set))) {
    EventData event{};
    const nvml::Return code = functions_.wait_for_event(set, &event, kWaitMs);
    if (code == kTimeout) {
      outcome_.add("waiting for events", Status::kPassed);
    } else if (succeeded("waiting for events", code)) {
      outcome_.figures["event_seen"] = {{"type", event.type}, {"data", event.data}};
      outcome_.add("waiting for events", Status::kPassed);
    }
  }
  functions_.free_set(set);
}

void Questions::ask_fields() {
  if (functions_.field_values == nullptr) {
    outcome_.add("field values", Status::kImpossible, "this NVML lacks nvmlDeviceGetFieldValues");
    return;
  }
  for (const FieldName& wanted : kFields) {
    nvml::FieldValue field{};
    field.field_id = wanted.id;
    const std::string part = "field " + std::to_string(wanted.id) + " (" + wanted.name + ")";
    if (!succeeded(part, functions_.field_values(device_, 1, &field))) continue;
    if (!succeeded(part, field.nvml_return)) continue;
    outcome_.figures[wanted.name] = field.value.as_u32;
    outcome_.add(part, Status::kPassed);
  }
}

void Questions::ask_remapped_rows() {
  if (functions_.remapped_rows == nullptr) {
    outcome_.add("remapped rows", Status::kImpossible, "this NVML lacks nvmlDeviceGetRemappedRows");
    return;
  }
  unsigned correctable = 0, uncorrectable = 0, pending = 0, failure = 0;
  const nvml::Return code =
      functions_.remapped_rows(device_, &correctable, &uncorrectable, &pending, &failure);
  if (!succeeded("remapped rows", code)) return;
  outcome_.figures["remapped_rows"] = {{"correctable", correctable},
                                       {"uncorrectable", uncorrectable},
                                       {"pending", pending},
                                       {"failure", failure}};
  outcome_.add("remapped rows", Status::kPassed);
}

}  // namespace

Result<Outcome> check_nvml(const Setting&) {
  constexpr const char* kLibrary = "libnvidia-ml.so.1";
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return not_possible(std::string("no NVML: ") + ::dlerror());
  Outcome outcome;
  // The agent's own NVML code runs first, and shows what the agent would report about these GPUs.
  CKPT_TRY(loaded, agent::Nvml::create(kLibrary));
  CKPT_TRY(gpus, loaded->read_gpus());
  Json seen = Json::array();
  for (const agent::GpuFacts& gpu : gpus) {
    seen.push_back({{"uuid", gpu.uuid},
                    {"name", gpu.name},
                    {"bus_id", gpu.bus_id},
                    {"memory_bytes", gpu.total_bytes},
                    {"free_bytes", gpu.free_bytes},
                    {"complaint", gpu.problem}});
    outcome.add("GPU " + std::to_string(gpu.index) + " as the agent sees it",
                gpu.problem.empty() ? Status::kPassed : Status::kFailed, gpu.problem);
  }
  outcome.figures["gpus"] = seen;
  const Functions functions(library);
  nvml::Device device = nullptr;
  if (gpus.empty() || functions.by_index(0, &device) != nvml::kSuccess)
    return Error(ErrorCode::kUnavailable, "NVML shows no GPU");
  Questions questions(functions, device, outcome);
  questions.ask_events();
  questions.ask_fields();
  questions.ask_remapped_rows();
  outcome.sum_up();
  return outcome;
}

}  // namespace ckpt::gpu_check
