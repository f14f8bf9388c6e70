// SPDX-License-Identifier: Apache-2.0
// The driver library's state in its process: devices, contexts, and each thread's current context.
// Threads: `lock` guards the list of contexts, the devices' primary contexts and everything in memory.h.
#pragma once

#include <cuda.h>

#include <memory>
#include <shared_mutex>
#include <vector>

#include "tests/simulators/cudasim/card/card.h"
#include "tests/simulators/cudasim/driver/context.h"

namespace cudasim {

struct Device {
  int physical = 0;
  // The device that the program saw first; its answers never change. After a restore on another device the
  // real driver's answers are stale in this way, too.
  int shown_physical = 0;
  Uuid shown_uuid{};
  std::unique_ptr<Card> card;
  Context* primary = nullptr;
  int primary_users = 0;
  unsigned primary_flags = 0;
};

class Process {
 public:
  static Process& get();

  CUresult initialize();
  [[nodiscard]] bool initialized() const { return initialized_; }
  // Returns CUDA_SUCCESS when calls are allowed: after cuInit, and not in a forked child of the process that
  // called cuInit.
  [[nodiscard]] CUresult ready() const;
  [[nodiscard]] bool valid_device(int ordinal) const {
    return ordinal >= 0 && ordinal < static_cast<int>(devices.size());
  }
  // Returns the ordinal of a device by its index on the machine, or -1 if the program does not see the
  // device.
  [[nodiscard]] int ordinal_of(int physical) const;

  // The caller must hold the lock for the following functions:
  CUresult open_context(int ordinal, unsigned flags, Context** out);
  void close_context(Context* context);
  bool valid_context(Context* context);
  // Returns a context whose executor may hold memory of the device: preferably a context on this device.
  Context* context_for(int ordinal);

  // Resets the state in a forked child, on its only thread. No call works in the child afterwards.
  void forget_in_child();

  std::shared_mutex lock;
  std::vector<Device> devices;
  std::vector<Context*> contexts;  // living contexts
  std::vector<Context*> closed;    // never freed (context.h); a leak detector finds the contexts here

 private:
  bool initialized_ = false;
  bool forked_ = false;
};

// Returns the calling thread's stack of contexts; the last context is current.
std::vector<Context*>& context_stack();

// Begins every call that needs a context. Returns the current context, or the error for the call.
CUresult enter(Context** context);
// Begins a call that also works on a context with a sticky error.
CUresult enter_any(Context** context);
// Begins a call with a stream's handle, including special handles. Returns the stream's context, which need
// not be the current one. Copies and waits may use streams of other contexts, but launches may not (CUDA C
// Programming Guide, "Stream and Event Behavior").
CUresult enter_stream(CUstream handle, Context** context, Stream** stream);

inline Context* from_handle(CUcontext handle) {
  return reinterpret_cast<Context*>(handle);
}
inline CUcontext to_handle(Context* context) {
  return reinterpret_cast<CUcontext>(context);
}

}  // namespace cudasim
