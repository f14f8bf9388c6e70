// SPDX-License-Identifier: Apache-2.0
// The gate between the program's threads and the driver. Every exported call that submits work or touches
// what a move changes is inside while it runs. A closed gate lets no call in. It counts as closed once no
// call is inside.
//   GateScope scope("cuLaunchKernel");           // the program's threads
//   GateWait wait;                               // within a scope: around a real call that waits for the
//                                                // device
//   CKPT_TRYV(gate().close(timeout));  ...  gate().open();   // the rank's session
// Threads: enter, leave and waits from any number; close and open from one at a time. Cost: an open gate
// takes a few nanoseconds and writes only the thread's own cache line. The thread that closes pays for the
// ordering instead (membarrier). A thread's first call allocates its slot. Nothing after that allocates or
// locks while the gate is open.
#pragma once

#include <atomic>
#include <cstdint>

#include "libckpt/base/clock.h"
#include "libckpt/base/result.h"

namespace ckpt::shim {

// One thread's line: where it is, and in which call.
struct alignas(64) GateSlot {
  enum Place : std::uint32_t { kOutside, kInside, kWaiting };
  std::atomic<std::uint32_t> place{kOutside};
  std::uint32_t depth = 0;  // of the owning thread's scopes
  std::atomic<const char*> call{nullptr};
  std::atomic<bool> owned{true};
  GateSlot* next = nullptr;
};

// The calling thread's slot; null before its first call. A preloaded library may use the initial-exec model.
extern thread_local constinit GateSlot* t_gate_slot __attribute__((tls_model("initial-exec")));

// One per process (gate()), since a thread has one slot.
class Gate {
 public:
  constexpr Gate() noexcept = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // Nests: only the outermost enter of a thread can block, and only while the gate is closed. `call` is a
  // string literal.
  void enter(const char* call) noexcept {
    GateSlot* slot = t_gate_slot;
    if (slot == nullptr) [[unlikely]] {
      slot = &claim_slot();
    }
    if (slot->depth++ != 0) return;
    slot->call.store(call, std::memory_order_relaxed);
    announce(*slot, GateSlot::kInside);
    if (closed()) [[unlikely]] {
      hold_up(*slot);
    }
  }
  void leave() noexcept {
    GateSlot* slot = t_gate_slot;
    if (--slot->depth == 0) depart(*slot, GateSlot::kOutside);
  }

  // The calling thread, which is inside, goes out to wait for the device, and comes back in (which a closed
  // gate holds up: it must hold no lock).
  void begin_wait() noexcept { depart(*t_gate_slot, GateSlot::kWaiting); }
  void end_wait() noexcept;

  // Shuts the gate and waits until no thread is inside; threads in a wait may still be (drain). Fails with
  // kTimedOut, the gate open again, naming the call that did not end.
  Result<void> close(Nanos timeout);
  // Waits, with the gate closed, until no thread is in a wait either. kTimedOut names the call; the gate
  // stays closed.
  Result<void> drain(Nanos timeout);
  // The call of some thread that is in a wait; null if none is.
  [[nodiscard]] const char* waiting_call() const noexcept;
  void open() noexcept;
  [[nodiscard]] bool closed() const noexcept { return closed_.load(std::memory_order_seq_cst) != 0; }

 private:
  // A thread's mark of where it is, before it reads the gate. Either the thread sees the gate closed or
  // close() sees the thread: of the four accesses (place, then closed_; closed_, then place) each is
  // sequentially consistent. A store of that kind costs some 20 cycles, so that close() makes up for a
  // cheaper one by membarrier where the kernel has it.
  void announce(GateSlot& slot, std::uint32_t place) const noexcept {
    if (asymmetric_.load(std::memory_order_relaxed)) [[likely]] {
      slot.place.store(place, std::memory_order_release);
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      slot.place.store(place, std::memory_order_seq_cst);
    }
  }
  void depart(GateSlot& slot, std::uint32_t place) noexcept {
    announce(slot, place);
    if (closed()) [[unlikely]] {
      notify_departure();
    }
  }
  GateSlot& claim_slot() noexcept;
  void hold_up(GateSlot& slot) noexcept;
  void notify_departure() noexcept;
  Result<void> shut() noexcept;
  Result<void> wait_until_none(bool waits_too, Nanos timeout);
  void forget_others() noexcept;
  static void release_slot(void* slot) noexcept;

  std::atomic<std::uint32_t> closed_{0};  // also the futex of the threads that are held up
  std::atomic<bool> asymmetric_{false};
  std::atomic<GateSlot*> slots_{nullptr};
  alignas(64) std::atomic<std::uint32_t> departures_{0};  // the futex of the thread that closes
};

extern constinit Gate g_gate;
[[nodiscard]] inline Gate& gate() noexcept {
  return g_gate;
}

struct GateScope {
  explicit GateScope(const char* call) noexcept { gate().enter(call); }
  ~GateScope() { gate().leave(); }
  GateScope(const GateScope&) = delete;
  GateScope& operator=(const GateScope&) = delete;
};

struct GateWait {
  GateWait() noexcept { gate().begin_wait(); }
  ~GateWait() { gate().end_wait(); }
  GateWait(const GateWait&) = delete;
  GateWait& operator=(const GateWait&) = delete;
};

}  // namespace ckpt::shim
