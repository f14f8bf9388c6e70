// SPDX-License-Identifier: Apache-2.0
// The gate between the program's threads and the driver. Every exported call that submits work, or uses
// things that a move changes, is inside the gate while it runs. A shut gate lets no call in. It counts as
// closed once no call is inside.
//   GateScope scope("cuLaunchKernel");           // the program's threads
//   GateWait wait;                               // within a scope: around a real call that waits for the
//                                                // device
//   CKPT_TRYV(gate().close(timeout));  ...  gate().open();   // the rank's session
// Threads: any number call enter, leave and waits; one at a time calls close and open. Cost: an open gate
// takes a few nanoseconds and writes only the thread's own cache line. The closing thread ensures the
// ordering instead, by membarrier. A thread's first call allocates its slot. Later calls neither allocate nor
// lock while the gate is open.
#pragma once

#include <atomic>
#include <cstdint>

#include "libckpt/base/clock.h"
#include "libckpt/base/result.h"

namespace ckpt::shim {

// One thread's cache line: its place, and its current call.
struct alignas(64) GateSlot {
  enum Place : std::uint32_t { kOutside, kInside, kWaiting };
  std::atomic<std::uint32_t> place{kOutside};
  std::uint32_t depth = 0;  // the nesting depth of the owning thread's scopes
  std::atomic<const char*> call{nullptr};
  std::atomic<bool> owned{true};
  GateSlot* next = nullptr;
};

// The calling thread's slot, which is null before the thread's first call. A preloaded library may use the
// initial-exec model.
extern thread_local constinit GateSlot* t_gate_slot __attribute__((tls_model("initial-exec")));

// The gate. A process has only one (gate()), because a thread has one slot.
class Gate {
 public:
  constexpr Gate() noexcept = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // Enters the gate. Scopes nest: only the outermost enter of a thread can block, and only while the gate is
  // closed. `call` is a string literal.
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

  // Leaves the gate for a wait for the device; the calling thread must be inside. end_wait() enters again and
  // blocks while the gate is closed, so the thread must hold no lock.
  void begin_wait() noexcept { depart(*t_gate_slot, GateSlot::kWaiting); }
  void end_wait() noexcept;

  // Shuts the gate and waits until no thread is inside. Threads in a wait may remain (drain). Fails with
  // kTimedOut, which names the call that did not end; the gate is then open again.
  Result<void> close(Nanos timeout);
  // Waits, with the gate closed, until no thread is in a wait either. kTimedOut names the call, and the gate
  // stays closed.
  Result<void> drain(Nanos timeout);
  // Returns the call of some thread that is in a wait. Returns null if there is none.
  [[nodiscard]] const char* waiting_call() const noexcept;
  void open() noexcept;
  [[nodiscard]] bool closed() const noexcept { return closed_.load(std::memory_order_seq_cst) != 0; }

 private:
  // Stores a thread's place before the thread reads the gate. Either the thread reads the gate as closed, or
  // close() reads the thread's place: all four accesses (place, then closed_; closed_, then place) are
  // sequentially consistent. Such a store takes some 20 cycles. A cheaper store is used where the kernel has
  // membarrier, and close() then provides the ordering.
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

  std::atomic<std::uint32_t> closed_{0};  // whether the gate is closed; also the futex on which blocked
                                          // threads wait
  std::atomic<bool> asymmetric_{false};
  std::atomic<GateSlot*> slots_{nullptr};
  alignas(64) std::atomic<std::uint32_t> departures_{0};  // the futex on which the closing thread waits
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
