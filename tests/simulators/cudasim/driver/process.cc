// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/cudasim/driver/process.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <mutex>

#include "tests/simulators/cudasim/driver/capture.h"
#include "tests/simulators/cudasim/driver/gate.h"
#include "tests/simulators/cudasim/driver/host_files.h"
#include "tests/simulators/cudasim/driver/memory.h"
#include "tests/simulators/cudasim/driver/order.h"

namespace cudasim {
namespace {

// Returns the process state. It is never destroyed, since other libraries may call the driver while the
// process exits.
Process* the_process() {
  static auto* process = new Process;
  return process;
}

bool reserve_addresses() {
  void* at = reinterpret_cast<void*>(kDeviceBase);
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  return ::mmap(at, kDeviceBytes + kHostBytes + kGlobalBytes, PROT_NONE, flags, -1, 0) == at;
}

}  // namespace

Process& Process::get() {
  return *the_process();
}

CUresult Process::initialize() {
  std::unique_lock<std::shared_mutex> guard(lock);
  if (forked_) return CUDA_ERROR_NOT_INITIALIZED;
  if (initialized_) return CUDA_SUCCESS;
  if (!HostFiles::names_threads()) return CUDA_ERROR_OPERATING_SYSTEM;
  const std::vector<int> visible = visible_devices();
  if (visible.empty()) return CUDA_ERROR_NO_DEVICE;
  for (const int physical : visible) {
    Device device;
    device.physical = physical;
    device.shown_physical = physical;
    device.shown_uuid = device_uuid(settings().dir, physical);
    device.card = Card::open(settings().dir, physical, settings().memory);
    if (device.card == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
    devices.push_back(std::move(device));
  }
  if (!reserve_addresses()) {
    devices.clear();
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  pthread_atfork(nullptr, nullptr, [] { Process::get().forget_in_child(); });
  HostFiles::get().open();
  initialized_ = true;
  start_taking_orders();
  guard.unlock();
  HostFiles::get().load_profiler();
  return CUDA_SUCCESS;
}

// Closes the executors' connections and the cards in a forked child. NVIDIA's driver has no equivalent of
// them. Otherwise the child would prolong the life of an executor that the program has already released.
void Process::forget_in_child() {
  forked_ = true;
  gate().forget();
  for (Context* context : contexts) context->forget_executor();
  for (Device& device : devices) device.card.reset();
}

CUresult Process::ready() const {
  return initialized_ && !forked_ ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

int Process::ordinal_of(int physical) const {
  for (std::size_t i = 0; i < devices.size(); i++) {
    if (devices[i].physical == physical) return static_cast<int>(i);
  }
  return -1;
}

CUresult Process::open_context(int ordinal, unsigned flags, Context** out) {
  const Device& device = devices[static_cast<std::size_t>(ordinal)];
  if (device.card->state().lost.load() != 0) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  const CUresult result = Context::create(ordinal, device.physical, flags, out);
  if (result != CUDA_SUCCESS) return result;
  contexts.push_back(*out);
  const CUresult mapped = Memory::get().join(*out);
  if (mapped != CUDA_SUCCESS) close_context(*out);
  return mapped;
}

void Process::close_context(Context* context) {
  contexts.erase(std::remove(contexts.begin(), contexts.end(), context), contexts.end());
  closed.push_back(context);
  Memory::get().leave(context);
  context->destroy();
}

bool Process::valid_context(Context* context) {
  return std::find(contexts.begin(), contexts.end(), context) != contexts.end();
}

Context* Process::context_for(int ordinal) {
  Context* current = context_stack().empty() ? nullptr : context_stack().back();
  if (!valid_context(current)) current = nullptr;
  if (current != nullptr && current->ordinal() == ordinal) return current;
  for (Context* context : contexts) {
    if (context->ordinal() == ordinal) return context;
  }
  return nullptr;
}

std::vector<Context*>& context_stack() {
  static thread_local std::vector<Context*> stack;
  return stack;
}

CUresult enter_any(Context** context) {
  const CUresult ready = Process::get().ready();
  if (ready != CUDA_SUCCESS) return ready;
  const std::vector<Context*>& stack = context_stack();
  if (stack.empty() || stack.back() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!stack.back()->alive()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *context = stack.back();
  return CUDA_SUCCESS;
}

CUresult enter(Context** context) {
  const CUresult result = enter_any(context);
  return result != CUDA_SUCCESS ? result : (*context)->error();
}

CUresult enter_stream(CUstream handle, Context** context, Stream** stream) {
  const CUresult result = enter(context);
  if (result != CUDA_SUCCESS) return result;
  if (handle == nullptr && null_stream_is_per_thread()) handle = CU_STREAM_PER_THREAD;
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    *stream = (*context)->legacy_stream();
    return allow_legacy_stream(*context);
  }
  if (handle == CU_STREAM_PER_THREAD) {
    *stream = (*context)->thread_stream();
    return *stream != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  }
  *stream = reinterpret_cast<Stream*>(handle);
  if (!(*stream)->alive) return CUDA_ERROR_INVALID_HANDLE;
  *context = (*stream)->context;
  return (*context)->alive() ? (*context)->error() : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

}  // namespace cudasim
