// SPDX-License-Identifier: Apache-2.0
#include "libckpt/shim/captures.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>

namespace ckpt::shim {
namespace {

constexpr Nanos kSecond = 1'000'000'000;

// Each side announces itself, then looks for the other. Both are futexes.
constinit std::atomic<std::uint32_t> g_open{0};
constinit std::atomic<std::uint32_t> g_synchronizing{0};

void wait_while(std::atomic<std::uint32_t>& word, std::uint32_t value, const timespec* timeout) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, timeout, nullptr, 0);
}

void wake_all(std::atomic<std::uint32_t>& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

void end_synchronizing() noexcept {
  if (g_synchronizing.fetch_sub(1) == 1 && g_open.load() != 0) wake_all(g_synchronizing);
}

}  // namespace

void capture_begins() noexcept {
  g_open.fetch_add(1);
  for (std::uint32_t running = 0; (running = g_synchronizing.load()) != 0;)
    wait_while(g_synchronizing, running, nullptr);
}

void capture_ended() noexcept {
  std::uint32_t before = g_open.load();
  while (before > 0 && !g_open.compare_exchange_weak(before, before - 1)) {
  }
  if (before == 1) wake_all(g_open);
}

bool captures_open() noexcept {
  return g_open.load(std::memory_order_relaxed) > 0;
}

bool wait_for_captures(Nanos deadline) noexcept {
  for (std::uint32_t open = 0; (open = g_open.load()) != 0;) {
    const Nanos left = deadline - now_ns();
    if (left <= 0) return false;
    const timespec span{left / kSecond, left % kSecond};
    wait_while(g_open, open, &span);
  }
  return true;
}

NoCapture::NoCapture() noexcept {
  if (g_open.load() != 0) return;
  g_synchronizing.fetch_add(1);
  holds_ = g_open.load() == 0;
  if (!holds_) end_synchronizing();
}

NoCapture::~NoCapture() {
  if (holds_) end_synchronizing();
}

}  // namespace ckpt::shim
