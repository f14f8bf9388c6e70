// SPDX-License-Identifier: Apache-2.0
// The driver library's state in its process: devices, contexts, and each thread's current context.
// Threads: `lock` guards the contexts' list, the devices' primary contexts and everything in memory.h.
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
  // The device that the program saw first, and sees for ever. After a restore on another one the real
  // driver's answers are stale in this way, too.
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
  // CUDA_SUCCESS when calls are allowed: after cuInit, and not in a forked child of the process that called
  // it.
  [[nodiscard]] CUresult ready() const;
  [[nodiscard]] bool valid_device(int ordinal) const {
    return ordinal >= 0 && ordinal < static_cast<int>(devices.size());
  }
  // The ordinal of a device by its index on the machine, or -1 if the program does not see it.
  [[nodiscard]] int ordinal_of(int physical) const;

  // Under the lock:
  CUresult open_context(int ordinal, unsigned flags, Context** out);
  void close_context(Context* context);
  bool valid_context(Context* context);
  // A context whose executor may hold memory of the device: preferably one on it.
  Context* context_for(int ordinal);

  // In a forked child, on its only thread: no call works there any more.
  void forget_in_child();

  std::shared_mutex lock;
  std::vector<Device> devices;
  std::vector<Context*> contexts;  // alive
  std::vector<Context*> closed;    // never freed (context.h); a leak detector finds them here

 private:
  bool initialized_ = false;
  bool forked_ = false;
};

// The calling thread's stack of contexts; the last one is current.
std::vector<Context*>& context_stack();

// Entry of every call that needs a context: the current one, or the error to return.
CUresult enter(Context** context);
// For calls that work on a context with a sticky error, too.
CUresult enter_any(Context** context);
// Also takes the stream's handle, special ones included. The context is the stream's, which need not be the
// current one (copies and waits may use streams of other contexts, launches may not: CUDA C Programming
// Guide, "Stream and Event Behavior").
CUresult enter_stream(CUstream handle, Context** context, Stream** stream);

inline Context* from_handle(CUcontext handle) {
  return reinterpret_cast<Context*>(handle);
}
inline CUcontext to_handle(Context* context) {
  return reinterpret_cast<CUcontext>(context);
}

}  // namespace cudasim
