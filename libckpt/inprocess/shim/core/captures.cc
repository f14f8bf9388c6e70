// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/shim/core/captures.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <ctime>
#include <iterator>
#include <mutex>

#include "libckpt/inprocess/shim/core/job_state.h"

namespace ckpt::shim {
namespace {

constexpr Nanos kSecond = 1'000'000'000;

// The counters of open captures and of running synchronizations. Each side announces itself in its counter
// and then checks the other counter. Both counters are futexes.
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

using Known = EndingCaptures::Known;

struct KnownCaptures {
  std::mutex mutex;
  std::vector<Known> all;
  pthread_key_t thread_key{};
};

// Removes and returns the captures for which `meant` returns true.
template <class Meant>
std::vector<Known> extract(Meant meant) noexcept;

void end_with_thread(void*) noexcept {
  if (forgotten()) return;
  const auto thread = static_cast<unsigned long>(::pthread_self());
  const std::vector<Known> ended = extract([thread](const Known& known) { return known.thread == thread; });
  for (std::size_t i = 0; i < ended.size(); ++i) capture_ended();
}

KnownCaptures& known_captures() {
  static auto* const known = [] {
    auto* made = new KnownCaptures;
    ::pthread_key_create(&made->thread_key, &end_with_thread);
    return made;
  }();
  return *known;
}

template <class Meant>
std::vector<Known> extract(Meant meant) noexcept {
  KnownCaptures& known = known_captures();
  const std::lock_guard lock(known.mutex);
  std::vector<Known> matching;
  std::copy_if(known.all.begin(), known.all.end(), std::back_inserter(matching), meant);
  std::erase_if(known.all, meant);
  return matching;
}

unsigned long thread_of(const CaptureOrigin& origin) noexcept {
  return origin.stream == CU_STREAM_PER_THREAD ? static_cast<unsigned long>(::pthread_self()) : 0;
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

void note_capture(const CaptureOrigin& origin) noexcept {
  KnownCaptures& known = known_captures();
  const unsigned long thread = thread_of(origin);
  if (thread != 0)
    ::pthread_setspecific(known.thread_key, &known);  // set only so that the key's destructor
                                                      // runs
  const std::lock_guard lock(known.mutex);
  known.all.push_back({origin, thread});
}

void end_capture(const CaptureOrigin& origin) noexcept {
  const unsigned long thread = thread_of(origin);
  const std::vector<Known> ended = extract([&](const Known& known) {
    return known.origin.stream == origin.stream && known.thread == thread &&
           (thread == 0 || known.origin.context == origin.context);
  });
  for (std::size_t i = 0; i < ended.size(); ++i) capture_ended();
}

EndingCaptures::EndingCaptures(CUstream stream) noexcept
    : taken_(extract(
          [stream](const Known& known) { return known.thread == 0 && known.origin.stream == stream; })) {}

EndingCaptures::EndingCaptures(CUcontext context) noexcept
    : taken_(extract(
          [context](const Known& known) { return context != nullptr && known.origin.context == context; })) {}

EndingCaptures::~EndingCaptures() {
  if (taken_.empty()) return;
  KnownCaptures& known = known_captures();
  const std::lock_guard lock(known.mutex);
  known.all.insert(known.all.end(), taken_.begin(), taken_.end());
}

void EndingCaptures::ended() noexcept {
  for (std::size_t i = 0; i < taken_.size(); ++i) capture_ended();
  taken_.clear();
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
