// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/cudasim/driver/gate.h"

#include <sanitizer/tsan_interface.h>

#include <algorithm>

#include "tests/simulators/cudasim/card/futex.h"

// These functions exist only in a program under ThreadSanitizer; the driver itself is never built with it.
// Without these annotations ThreadSanitizer would report races between a checkpoint and earlier calls of
// other threads. Each direction has its own address, since calls are not ordered among themselves.
#pragma weak __tsan_acquire
#pragma weak __tsan_release

namespace cudasim {
namespace {

void announce_acquire(void* address) {
  if (__tsan_acquire != nullptr) [[unlikely]]
    __tsan_acquire(address);
}
void announce_release(void* address) {
  if (__tsan_release != nullptr) [[unlikely]]
    __tsan_release(address);
}

constexpr int kCheckInterval = 1000;  // ms; a futex wakes waiters, and this interval only limits the delay of
                                      // a lost wake-up

thread_local int depth = 0;
thread_local bool per_thread_stream_now = false;

}  // namespace

int milliseconds_left(Deadline deadline, int limit) {
  if (deadline == kNoDeadline) return limit;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                        deadline - std::chrono::steady_clock::now() + std::chrono::microseconds(999))
                        .count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, limit));
}

Gate& gate() {
  static auto* gate = new Gate;
  return *gate;
}

void Gate::enter() {
  inside_.fetch_add(1);
  if (closed_.load() != 0) [[unlikely]]
    wait_open();
  announce_acquire(&closed_);
}

void Gate::leave() {
  announce_release(&inside_);
  inside_.fetch_sub(1);
  if (closed_.load() != 0) [[unlikely]]
    wake_closer();
}

void Gate::wait_open() {
  for (;;) {
    inside_.fetch_sub(1);
    wake_closer();
    while (closed_.load() != 0) futex_wait(closed_, 1, kCheckInterval);
    inside_.fetch_add(1);
    if (closed_.load() == 0) return;
  }
}

void Gate::wake_closer() {
  futex_wake_all(inside_);
}

bool Gate::close(Deadline deadline) {
  closed_.store(1);
  for (;;) {
    const std::uint32_t inside = inside_.load();
    if (inside == 0) {
      announce_acquire(&inside_);
      return true;
    }
    const int left = milliseconds_left(deadline, kCheckInterval);
    if (left == 0) {
      open();
      return false;
    }
    futex_wait(inside_, inside, left);
  }
}

void Gate::open() {
  announce_release(&closed_);
  closed_.store(0);
  futex_wake_all(closed_);
}

void Gate::forget() {
  inside_.store(0);
  closed_.store(0);
}

CallScope::CallScope(bool gated, bool per_thread_stream)
    : gated_(gated), outer_per_thread_(per_thread_stream_now) {
  if (gated_ && depth++ == 0) gate().enter();
  per_thread_stream_now = per_thread_stream;
}

CallScope::~CallScope() {
  per_thread_stream_now = outer_per_thread_;
  if (gated_ && --depth == 0) gate().leave();
}

bool null_stream_is_per_thread() {
  return per_thread_stream_now;
}

}  // namespace cudasim
