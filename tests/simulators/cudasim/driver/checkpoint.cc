// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/cudasim/driver/checkpoint.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "tests/simulators/cudasim/driver/host_files.h"
#include "tests/simulators/cudasim/driver/memory.h"
#include "tests/simulators/cudasim/driver/process.h"

namespace cudasim {
namespace {

// Returns whether the program still has an open descriptor of memory that it has exported. The driver could
// not release such memory.
bool holds_exports() {
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return false;
  bool found = false;
  while (const dirent* entry = ::readdir(folder)) {
    char target[64];
    const ssize_t length = ::readlinkat(::dirfd(folder), entry->d_name, target, sizeof target);
    found =
        found || (length > 0 &&
                  std::string(target, static_cast<std::size_t>(length)).rfind("/memfd:cudasim (", 0) == 0);
  }
  ::closedir(folder);
  return found;
}

Settings machine_of(const Order& order) {
  Settings machine;
  machine.dir = order.dir;
  machine.name = order.name;
  machine.devices = std::clamp(order.devices, 0, kMaxDevices);
  machine.memory = order.memory;
  machine.huge_pages = order.huge_pages != 0;
  machine.imports =
      static_cast<Imports>(std::min(order.imports, static_cast<std::uint32_t>(Imports::kNever)));
  return machine;
}

int index_of(const Settings& machine, const Uuid& uuid) {
  for (int i = 0; i < machine.devices; i++) {
    if (device_uuid(machine.dir, i) == uuid) return i;
  }
  return -1;
}

// Assigns the device on which each of the process's devices continues. Given pairs must include all of them.
// Without pairs a device continues on itself, or on another machine on the device with the same number.
CUresult assign_devices(const Order& order, const Settings& machine, std::vector<int>* out) {
  if (order.pair_count > kMaxDevices) return CUDA_ERROR_INVALID_VALUE;
  for (const Device& device : Process::get().devices) {
    const Uuid own = device_uuid(settings().dir, device.physical);
    int index = -1;
    if (order.pair_count == 0) {
      index = index_of(machine, own);
      if (index < 0 && device.physical < machine.devices) index = device.physical;
    }
    for (std::uint32_t i = 0; i < order.pair_count; i++) {
      if (order.pairs[i].from == own) index = index_of(machine, order.pairs[i].to);
    }
    if (index < 0 || std::find(out->begin(), out->end(), index) != out->end())
      return CUDA_ERROR_INVALID_VALUE;
    out->push_back(index);
  }
  return CUDA_SUCCESS;
}

bool same_devices(const Settings& machine, const std::vector<int>& physical) {
  const auto& devices = Process::get().devices;
  for (std::size_t i = 0; i < physical.size(); i++) {
    if (device_uuid(machine.dir, physical[i]) != device_uuid(settings().dir, devices[i].physical))
      return false;
  }
  return true;
}

// Releases the contexts at exit(), as the real driver's library does.
__attribute__((destructor)) void leave_contexts() {
  for (Context* context : Process::get().contexts) context->mark_leaving();
}

}  // namespace

Checkpoint& Checkpoint::get() {
  static auto* checkpoint = new Checkpoint;
  return *checkpoint;
}

OrderReply Checkpoint::obey(const Order& order) {
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  switch (order.kind) {
    case OrderKind::kGetState:
      result = CUDA_SUCCESS;
      break;
    case OrderKind::kLock:
      result = lock(order.timeout_ms);
      break;
    case OrderKind::kCheckpoint:
      result = checkpoint();
      break;
    case OrderKind::kRestore:
      result = restore(order);
      break;
    case OrderKind::kUnlock:
      result = unlock();
      break;
  }
  return {static_cast<std::uint32_t>(result), static_cast<std::uint32_t>(state_)};
}

CUresult Checkpoint::lock(unsigned timeout_ms) {
  if (state_ != CU_PROCESS_STATE_RUNNING) return CUDA_ERROR_ILLEGAL_STATE;
  const Deadline deadline = timeout_ms == 0
                                ? kNoDeadline
                                : std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  if (!gate().close(deadline)) return CUDA_ERROR_NOT_READY;
  for (Context* context : Process::get().contexts) {
    if (context->drain(deadline)) continue;
    gate().open();
    return CUDA_ERROR_NOT_READY;
  }
  state_ = CU_PROCESS_STATE_LOCKED;
  return CUDA_SUCCESS;
}

// Performs all steps that may fail first. Then the process releases its devices.
CUresult Checkpoint::checkpoint() {
  if (state_ != CU_PROCESS_STATE_LOCKED) return CUDA_ERROR_ILLEGAL_STATE;
  Process& process = Process::get();
  for (Context* context : process.contexts) {
    if (context->error() != CUDA_SUCCESS) return context->error();
  }
  if (HostFiles::get().has_profiler() || holds_exports() || Memory::get().has_imports())
    return CUDA_ERROR_NOT_SUPPORTED;
  CUresult result = CUDA_SUCCESS;
  for (Context* context : process.contexts) {
    if (result == CUDA_SUCCESS) result = context->save();
  }
  if (result == CUDA_SUCCESS) result = Memory::get().save();
  if (result != CUDA_SUCCESS) {
    Memory::get().forget_saved();
    return result;
  }
  for (Context* context : process.contexts) context->close_executor();
  for (Device& device : process.devices) device.card.reset();
  HostFiles::get().close_device();
  state_ = CU_PROCESS_STATE_CHECKPOINTED;
  return CUDA_SUCCESS;
}

CUresult Checkpoint::restore(const Order& order) {
  if (state_ != CU_PROCESS_STATE_CHECKPOINTED) return CUDA_ERROR_ILLEGAL_STATE;
  if (broken_) return CUDA_ERROR_OPERATING_SYSTEM;
  const Settings machine = machine_of(order);
  Process& process = Process::get();
  std::vector<int> physical;
  CUresult result = assign_devices(order, machine, &physical);
  if (result != CUDA_SUCCESS) return result;
  // The other machine has GPUs of another type.
  if (machine.name != settings().name) return CUDA_ERROR_NOT_SUPPORTED;
  std::vector<std::unique_ptr<Card>> cards;
  for (const int index : physical) {
    cards.push_back(Card::open(machine.dir, index, machine.memory));
    if (cards.back() == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
    if (cards.back()->state().lost.load() != 0) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  }
  const bool moved = !same_devices(machine, physical);
  if (machine.imports == Imports::kNever || (machine.imports == Imports::kSameDevice && moved))
    Memory::get().refuse_imports();
  change_settings(machine);
  for (std::size_t i = 0; i < cards.size(); i++) {
    process.devices[i].physical = physical[i];
    process.devices[i].card = std::move(cards[i]);
  }
  HostFiles::get().open_device();
  for (Context* context : process.contexts) {
    const Device& device = process.devices[static_cast<std::size_t>(context->ordinal())];
    if (result == CUDA_SUCCESS) result = context->open_executor(device.physical);
  }
  if (result == CUDA_SUCCESS) result = Memory::get().restore();
  if (result != CUDA_SUCCESS) {
    give_up();
    return result;
  }
  for (Context* context : process.contexts) context->mark_restored();
  state_ = CU_PROCESS_STATE_LOCKED;
  return CUDA_SUCCESS;
}

void Checkpoint::give_up() {
  broken_ = true;
  for (Context* context : Process::get().contexts) context->close_executor();
  for (Device& device : Process::get().devices) device.card.reset();
  HostFiles::get().close_device();
}

CUresult Checkpoint::unlock() {
  if (state_ != CU_PROCESS_STATE_LOCKED) return CUDA_ERROR_ILLEGAL_STATE;
  state_ = CU_PROCESS_STATE_RUNNING;
  gate().open();
  return CUDA_SUCCESS;
}

}  // namespace cudasim
