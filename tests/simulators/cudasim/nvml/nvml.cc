// SPDX-License-Identifier: Apache-2.0
// This is libnvidia-ml.so.1 of the software driver. Like the real library it shows all devices of the
// machine, regardless of CUDA_VISIBLE_DEVICES. Handles are pointers to entries that exist as long as the
// process.
#include "tests/simulators/cudasim/nvml/nvml.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/simulators/cudasim/card/card.h"
#include "tests/simulators/cudasim/card/futex.h"
#include "tests/simulators/cudasim/nvml/topology.h"

namespace {

using namespace cudasim;
using namespace cudasim::nvml;

constexpr unsigned kPciBusBase = 0x10;
constexpr std::uint32_t kNoInstance = 0xFFFFFFFF;
constexpr std::uint64_t kSupportedEvents = kEventXidCritical | kEventRecoveryAction;
constexpr int kPollMilliseconds = 100;
constexpr int kHangLookMilliseconds = 1000;

struct Gpu {
  int index;
  std::unique_ptr<Card> card;
};

struct Registration {
  Gpu* gpu;
  std::uint64_t types;
  std::uint64_t xids_seen;
  std::uint32_t recovery_seen;
};

struct EventSet {
  std::mutex mutex;
  std::vector<Registration> registrations;
};

struct Library {
  std::mutex mutex;
  int users = 0;
  std::vector<std::unique_ptr<Gpu>> gpus;
};

// Returns the library's state. It is never destroyed, since other libraries may call NVML while the process
// exits.
Library& library() {
  static auto* instance = new Library;
  return *instance;
}

Return ready() {
  std::lock_guard<std::mutex> lock(library().mutex);
  return library().users > 0 ? kSuccess : kUninitialized;
}

// Simulates a hang of the whole library, as with a wedged driver. The caller blocks until the fault is
// withdrawn.
void hang_if_ordered(Gpu& gpu) {
  static const std::string order = settings().dir + "/nvml-hangs";
  for (;;) {
    const std::uint32_t change = gpu.card->state().change.load();
    if (::access(order.c_str(), F_OK) != 0) return;
    futex_wait(gpu.card->state().change, change, kHangLookMilliseconds);
  }
}

Gpu* gpu_of(void* handle) {
  for (const std::unique_ptr<Gpu>& known : library().gpus) {
    if (known.get() == handle) return known.get();
  }
  return nullptr;
}

Return check(void* handle, Gpu** gpu) {
  {
    std::lock_guard<std::mutex> lock(library().mutex);
    if (library().users == 0) return kUninitialized;
    *gpu = gpu_of(handle);
  }
  if (*gpu == nullptr) return kInvalidArgument;
  hang_if_ordered(**gpu);
  return (*gpu)->card->state().lost.load() != 0 ? kGpuIsLost : kSuccess;
}

template <typename Matches>
Return find(void** out, const Matches& matches) {
  if (out == nullptr) return kInvalidArgument;
  std::lock_guard<std::mutex> lock(library().mutex);
  if (library().users == 0) return kUninitialized;
  for (const std::unique_ptr<Gpu>& gpu : library().gpus) {
    if (!matches(*gpu)) continue;
    *out = gpu.get();
    return kSuccess;
  }
  return kNotFound;
}

Return copy_text(const std::string& text, char* out, unsigned length) {
  if (out == nullptr) return kInvalidArgument;
  if (text.size() + 1 > length) return kInsufficientSize;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return kSuccess;
}

std::string bus_id(const Gpu& gpu) {
  char text[32];
  std::snprintf(text, sizeof text, "00000000:%02X:00.0", kPciBusBase + static_cast<unsigned>(gpu.index));
  return text;
}

std::int64_t now_us() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1000000 + now.tv_nsec / 1000;
}

void read_field(Gpu& gpu, FieldValue* value) {
  constexpr std::uint32_t kVolatileCorrected = 3;
  constexpr std::uint32_t kVolatileUncorrected = 4;
  constexpr std::uint32_t kAggregateCorrected = 5;
  constexpr std::uint32_t kAggregateUncorrected = 6;
  constexpr std::uint32_t kRemappedCorrectable = 142;
  constexpr std::uint32_t kRemappedUncorrectable = 143;
  constexpr std::uint32_t kRemapPending = 144;
  constexpr std::uint32_t kRemapFailure = 145;
  constexpr std::uint32_t kRecoveryAction = 230;
  constexpr std::uint32_t kUnsigned = 1;
  constexpr std::uint32_t kUnsigned64 = 3;
  const CardState& state = gpu.card->state();
  value->timestamp = now_us();
  value->latency_us = 0;
  value->value_type = kUnsigned;
  value->result = kSuccess;
  value->value.as_u64 = 0;
  const auto is_u64 = [value](std::uint64_t number) {
    value->value_type = kUnsigned64;
    value->value.as_u64 = number;
  };
  switch (value->field) {
    case kVolatileCorrected:
      return is_u64(state.ecc_volatile.corrected.load());
    case kVolatileUncorrected:
      return is_u64(state.ecc_volatile.uncorrected.load());
    case kAggregateCorrected:
      return is_u64(state.ecc_aggregate.corrected.load());
    case kAggregateUncorrected:
      return is_u64(state.ecc_aggregate.uncorrected.load());
    case kRemappedCorrectable:
      value->value.as_u32 = state.remapped_corrected.load();
      break;
    case kRemappedUncorrectable:
      value->value.as_u32 = state.remapped_uncorrected.load();
      break;
    case kRemapPending:
      value->value.as_u32 = state.remap_pending.load();
      break;
    case kRemapFailure:
      value->value.as_u32 = state.remap_failed.load();
      break;
    case kRecoveryAction:
      value->value.as_u32 = state.recovery_action.load();
      break;
    default:
      value->result = kNotSupported;
  }
}

// Returns the next event of one registration, oldest first.
bool next_event(Registration* registration, EventData* out) {
  Card& card = *registration->gpu->card;
  *out = {registration->gpu, 0, 0, kNoInstance, kNoInstance};
  if ((registration->types & kEventXidCritical) != 0) {
    const std::uint64_t count = card.xid_count();
    const std::vector<XidEvent> events = card.xids_since(registration->xids_seen);
    if (!events.empty()) {
      registration->xids_seen = count - events.size() + 1;
      out->type = kEventXidCritical;
      out->data = events.front().code;
      return true;
    }
  }
  const std::uint32_t recovery = card.state().recovery_action.load();
  if ((registration->types & kEventRecoveryAction) != 0 && recovery != registration->recovery_seen) {
    registration->recovery_seen = recovery;
    out->type = kEventRecoveryAction;
    return true;
  }
  return false;
}

}  // namespace

namespace cudasim::nvml {

Return find_device(void* handle, int* index) {
  Gpu* gpu = nullptr;
  const Return state = check(handle, &gpu);
  if (gpu != nullptr) *index = gpu->index;
  return state;
}

void describe_pci(int index, PciInfo* info) {
  *info = {};
  const std::string full = bus_id(Gpu{index, nullptr});
  std::memcpy(info->bus_id, full.c_str(), full.size() + 1);
  std::memcpy(info->bus_id_legacy, full.c_str() + 4, full.size() - 3);
  info->bus = kPciBusBase + static_cast<unsigned>(index);
}

}  // namespace cudasim::nvml

namespace {

struct ReturnName {
  Return result;
  const char* text;
};
constexpr ReturnName kReturnNames[] = {
    {kSuccess, "Success"},
    {kUninitialized, "Uninitialized"},
    {kInvalidArgument, "Invalid Argument"},
    {kNotSupported, "Not Supported"},
    {kNotFound, "Not Found"},
    {kInsufficientSize, "Insufficient Size"},
    {kDriverNotLoaded, "Driver Not Loaded"},
    {kTimeout, "Timeout"},
    {kGpuIsLost, "GPU is lost"},
};

}  // namespace

extern "C" {

Return nvmlInit_v2() {
  std::lock_guard<std::mutex> lock(library().mutex);
  const Settings& machine = settings();
  if (library().gpus.empty()) {
    for (int i = 0; i < machine.devices; i++) {
      auto gpu = std::make_unique<Gpu>(Gpu{i, Card::open(machine.dir, i, machine.memory)});
      if (gpu->card == nullptr) return kDriverNotLoaded;
      library().gpus.push_back(std::move(gpu));
    }
  }
  library().users++;
  return kSuccess;
}

Return nvmlInitWithFlags(unsigned) {
  return nvmlInit_v2();
}
Return nvmlInit() {
  return nvmlInit_v2();
}

Return nvmlShutdown() {
  std::lock_guard<std::mutex> lock(library().mutex);
  if (library().users == 0) return kUninitialized;
  library().users--;
  return kSuccess;
}

const char* nvmlErrorString(Return result) {
  for (const ReturnName& entry : kReturnNames) {
    if (entry.result == result) return entry.text;
  }
  return "Unknown Error";
}

Return nvmlSystemGetDriverVersion(char* version, unsigned length) {
  const Return state = ready();
  return state != kSuccess ? state : copy_text("580.0-cudasim", version, length);
}

Return nvmlDeviceGetCount_v2(unsigned* count) {
  const Return state = ready();
  if (state != kSuccess) return state;
  if (count == nullptr) return kInvalidArgument;
  *count = static_cast<unsigned>(library().gpus.size());
  return kSuccess;
}

Return nvmlDeviceGetHandleByIndex_v2(unsigned index, void** out) {
  const Return state =
      find(out, [index](const Gpu& gpu) { return static_cast<unsigned>(gpu.index) == index; });
  return state == kNotFound ? kInvalidArgument : state;
}

Return nvmlDeviceGetHandleByUUID(const char* uuid, void** out) {
  if (uuid == nullptr) return kInvalidArgument;
  return find(out,
              [uuid](const Gpu& gpu) { return uuid_text(device_uuid(settings().dir, gpu.index)) == uuid; });
}

Return nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** out) {
  unsigned domain = 0;
  unsigned bus = 0;
  if (id == nullptr || std::sscanf(id, "%x:%x:", &domain, &bus) != 2 || domain != 0) return kInvalidArgument;
  return find(out, [bus](const Gpu& gpu) { return kPciBusBase + static_cast<unsigned>(gpu.index) == bus; });
}

Return nvmlDeviceGetName(void* device, char* name, unsigned length) {
  Gpu* gpu = nullptr;
  const Return state = check(device, &gpu);
  return state != kSuccess ? state : copy_text(settings().name, name, length);
}

Return nvmlDeviceGetUUID(void* device, char* uuid, unsigned length) {
  Gpu* gpu = nullptr;
  const Return state = check(device, &gpu);
  return state != kSuccess ? state
                           : copy_text(uuid_text(device_uuid(settings().dir, gpu->index)), uuid, length);
}

Return nvmlDeviceGetIndex(void* device, unsigned* index) {
  Gpu* gpu = nullptr;
  const Return state = check(device, &gpu);
  if (state != kSuccess) return state;
  if (index == nullptr) return kInvalidArgument;
  *index = static_cast<unsigned>(gpu->index);
  return kSuccess;
}

Return nvmlDeviceGetMinorNumber(void* device, unsigned* minor) {
  return nvmlDeviceGetIndex(device, minor);
}

Return nvmlDeviceGetPciInfo_v3(void* device, PciInfo* info) {
  Gpu* gpu = nullptr;
  const Return state = check(device, &gpu);
  if (state != kSuccess) return state;
  if (info == nullptr) return kInvalidArgument;
  describe_pci(gpu->index, info);
  return kSuccess;
}

Return nvmlDeviceGetMemoryInfo(void* device, MemoryInfo* info) {
  Gpu* gpu = nullptr;
  const Return state = check(device, &gpu);
  if (state != kSuccess) return state;
  if (info == nullptr) return kInvalidArgument;
  const Card::Memory memory = gpu->card->memory();
  info->total = gpu->card->state().configured_memory;
  info->used = memory.used;
  info->free = memory.total > memory.used ? memory.total - memory.used : 0;
  return kSuccess;
}

Return nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, ProcessInfo* out) {
  Gpu* gpu = nullptr;
  const Return state = check(device, &gpu);
  if (state != kSuccess) return state;
  if (count == nullptr) return kInvalidArgument;
  const std::vector<ProcessUse> uses = gpu->card->processes();
  const unsigned capacity = *count;
  *count = static_cast<unsigned>(uses.size());
  if (uses.size() > capacity || (out == nullptr && !uses.empty())) return kInsufficientSize;
  for (std::size_t i = 0; i < uses.size(); i++) {
    out[i] = {static_cast<std::uint32_t>(uses[i].pid), uses[i].bytes, kNoInstance, kNoInstance};
  }
  return kSuccess;
}

Return nvmlDeviceGetFieldValues(void* device, int count, FieldValue* values) {
  Gpu* gpu = nullptr;
  const Return state = check(device, &gpu);
  if (state != kSuccess) return state;
  if (count <= 0 || values == nullptr) return kInvalidArgument;
  for (int i = 0; i < count; i++) read_field(*gpu, &values[i]);
  return kSuccess;
}

Return nvmlDeviceGetRemappedRows(void* device, unsigned* correctable, unsigned* uncorrectable,
                                 unsigned* pending, unsigned* failed) {
  Gpu* gpu = nullptr;
  const Return state = check(device, &gpu);
  if (state != kSuccess) return state;
  if (correctable == nullptr || uncorrectable == nullptr || pending == nullptr || failed == nullptr) {
    return kInvalidArgument;
  }
  *correctable = gpu->card->state().remapped_corrected.load();
  *uncorrectable = gpu->card->state().remapped_uncorrected.load();
  *pending = gpu->card->state().remap_pending.load();
  *failed = gpu->card->state().remap_failed.load();
  return kSuccess;
}

Return nvmlDeviceGetSupportedEventTypes(void* device, unsigned long long* types) {
  Gpu* gpu = nullptr;
  const Return state = check(device, &gpu);
  if (state != kSuccess) return state;
  if (types == nullptr) return kInvalidArgument;
  *types = kSupportedEvents;
  return kSuccess;
}

Return nvmlEventSetCreate(void** out) {
  const Return state = ready();
  if (state != kSuccess) return state;
  if (out == nullptr) return kInvalidArgument;
  *out = new EventSet;
  return kSuccess;
}

Return nvmlEventSetFree(void* set) {
  if (set == nullptr) return kInvalidArgument;
  delete static_cast<EventSet*>(set);
  return kSuccess;
}

Return nvmlDeviceRegisterEvents(void* device, unsigned long long types, void* handle) {
  Gpu* gpu = nullptr;
  const Return state = check(device, &gpu);
  if (state != kSuccess) return state;
  if (handle == nullptr || types == 0) return kInvalidArgument;
  if ((types & ~kSupportedEvents) != 0) return kNotSupported;
  auto* set = static_cast<EventSet*>(handle);
  std::lock_guard<std::mutex> lock(set->mutex);
  for (Registration& registration : set->registrations) {
    if (registration.gpu != gpu) continue;
    registration.types |= types;
    return kSuccess;
  }
  set->registrations.push_back(
      {gpu, types, gpu->card->xid_count(), gpu->card->state().recovery_action.load()});
  return kSuccess;
}

// Returns one event per call. With several devices in the set it sleeps on the first device's word and polls
// the others often.
Return nvmlEventSetWait_v2(void* handle, EventData* out, unsigned timeout_ms) {
  if (handle == nullptr || out == nullptr) return kInvalidArgument;
  auto* set = static_cast<EventSet*>(handle);
  const std::int64_t deadline = now_us() + std::int64_t{timeout_ms} * 1000;
  for (;;) {
    std::atomic<std::uint32_t>* word = nullptr;
    std::uint32_t seen = 0;
    std::size_t devices = 0;
    {
      std::lock_guard<std::mutex> lock(set->mutex);
      devices = set->registrations.size();
      if (devices > 0) {
        word = &set->registrations[0].gpu->card->state().change;
        seen = word->load();
      }
      for (Registration& registration : set->registrations) {
        hang_if_ordered(*registration.gpu);
        if (registration.gpu->card->state().lost.load() != 0) return kGpuIsLost;
        if (next_event(&registration, out)) return kSuccess;
      }
    }
    const std::int64_t left = (deadline - now_us()) / 1000;
    if (left <= 0) return kTimeout;
    const std::int64_t slice = devices == 1 ? left : std::min<std::int64_t>(left, kPollMilliseconds);
    static std::atomic<std::uint32_t> nothing{0};
    futex_wait(word != nullptr ? *word : nothing, seen,
               static_cast<int>(std::min<std::int64_t>(slice, 1000000)));
  }
}

Return nvmlEventSetWait(void* set, EventData* out, unsigned timeout_ms) {
  return nvmlEventSetWait_v2(set, out, timeout_ms);
}

}  // extern "C"
