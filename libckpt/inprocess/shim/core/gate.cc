// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/shim/core/gate.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#include <mutex>
#include <new>
#include <string>

#include "libckpt/inprocess/shim/core/job_state.h"

namespace ckpt::shim {
namespace {

constexpr Nanos kSecond = 1'000'000'000;

bool membarrier(int command) noexcept {
  return ::syscall(SYS_membarrier, command, 0, 0) == 0;
}

// Registers for the expedited barrier, and runs it. The registration is repeated because a restored process
// may have lost it.
bool expedited_membarrier() noexcept {
  return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
         membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, const timespec* timeout) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, timeout, nullptr, 0);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

pthread_key_t g_slot_key;
std::once_flag g_once;

}  // namespace

thread_local constinit GateSlot* t_gate_slot = nullptr;
constinit Gate g_gate;

GateSlot& Gate::claim_slot() noexcept {
  std::call_once(g_once, [] {
    ::pthread_key_create(&g_slot_key, &Gate::release_slot);
    at_fork_child([] { gate().forget_others(); });
    g_gate.asymmetric_.store(expedited_membarrier(), std::memory_order_seq_cst);
  });
  GateSlot* slot = slots_.load(std::memory_order_acquire);
  for (; slot != nullptr; slot = slot->next) {
    bool free = false;
    if (slot->owned.compare_exchange_strong(free, true, std::memory_order_acquire)) break;
  }
  if (slot == nullptr) {
    slot = new (std::nothrow) GateSlot;
    if (slot == nullptr)
      std::abort();  // aborts, because without 64 bytes of memory the program could not
                     // continue either
    slot->next = slots_.load(std::memory_order_relaxed);
    while (!slots_.compare_exchange_weak(slot->next, slot, std::memory_order_seq_cst)) {
    }
  }
  t_gate_slot = slot;
  ::pthread_setspecific(g_slot_key, slot);
  return *slot;
}

// Releases the slot of a thread that exits, possibly in the middle of a call.
void Gate::release_slot(void* pointer) noexcept {
  auto& slot = *static_cast<GateSlot*>(pointer);
  slot.depth = 0;
  g_gate.depart(slot, GateSlot::kOutside);
  t_gate_slot = nullptr;
  slot.owned.store(false, std::memory_order_release);
}

void Gate::forget_others() noexcept {
  closed_.store(0, std::memory_order_relaxed);
  for (GateSlot* slot = slots_.load(std::memory_order_acquire); slot != nullptr; slot = slot->next) {
    if (slot == t_gate_slot) continue;
    slot->depth = 0;
    slot->place.store(GateSlot::kOutside, std::memory_order_relaxed);
    slot->owned.store(false, std::memory_order_relaxed);
  }
}

void Gate::hold_up(GateSlot& slot) noexcept {
  do {
    slot.place.store(GateSlot::kOutside, std::memory_order_release);
    notify_departure();
    while (closed()) futex_wait(closed_, 1, nullptr);
    announce(slot, GateSlot::kInside);
  } while (closed());
}

void Gate::end_wait() noexcept {
  GateSlot& slot = *t_gate_slot;
  announce(slot, GateSlot::kInside);
  if (closed()) hold_up(slot);
}

void Gate::notify_departure() noexcept {
  departures_.fetch_add(1, std::memory_order_release);
  futex_wake_all(departures_);
}

// Shuts the gate. After this store, every thread was either found inside or will find the gate closed.
Result<void> Gate::shut() noexcept {
  closed_.store(1, std::memory_order_seq_cst);
  if (asymmetric_.load(std::memory_order_seq_cst) && !expedited_membarrier() &&
      !membarrier(MEMBARRIER_CMD_GLOBAL)) {
    return Error::from_errno("Cannot synchronize the program's threads (membarrier)");
  }
  return ok();
}

Result<void> Gate::close(Nanos timeout) {
  Result<void> done = shut();
  if (done) done = wait_until_none(false, timeout);
  if (!done) open();
  return done;
}

Result<void> Gate::drain(Nanos timeout) {
  return wait_until_none(true, timeout);
}

Result<void> Gate::wait_until_none(bool waits_too, Nanos timeout) {
  const Nanos deadline = now_ns() + timeout;
  for (;;) {
    const std::uint32_t seen = departures_.load(std::memory_order_acquire);
    const char* call = nullptr;
    int others = -1;
    for (GateSlot* slot = slots_.load(std::memory_order_seq_cst); slot != nullptr; slot = slot->next) {
      const std::uint32_t place = slot->place.load(std::memory_order_seq_cst);
      if (place == GateSlot::kOutside || (place == GateSlot::kWaiting && !waits_too)) continue;
      call = slot->call.load(std::memory_order_relaxed);
      ++others;
    }
    if (call == nullptr) return ok();
    const Nanos left = deadline - now_ns();
    if (left <= 0) {
      std::string text = std::string("The program is still in ") + call;
      if (others > 0)
        text += " and " + std::to_string(others) + (others == 1 ? " other call" : " other calls");
      return Error(ErrorCode::kTimedOut, text + " after " + std::to_string(timeout / 1'000'000) + " ms");
    }
    const timespec span{.tv_sec = left / kSecond, .tv_nsec = left % kSecond};
    futex_wait(departures_, seen, &span);
  }
}

const char* Gate::waiting_call() const noexcept {
  for (const GateSlot* slot = slots_.load(std::memory_order_acquire); slot != nullptr; slot = slot->next) {
    if (slot->place.load(std::memory_order_acquire) == GateSlot::kWaiting)
      return slot->call.load(std::memory_order_relaxed);
  }
  return nullptr;
}

void Gate::open() noexcept {
  closed_.store(0, std::memory_order_release);
  futex_wake_all(closed_);
}

}  // namespace ckpt::shim
