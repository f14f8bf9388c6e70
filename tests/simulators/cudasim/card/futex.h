// SPDX-License-Identifier: Apache-2.0
// Futexes on words that several processes share.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace cudasim {

// Sleeps while *word == value, at most `milliseconds` (< 0: without limit). The function may return early.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, int milliseconds) {
  timespec limit{milliseconds / 1000, (milliseconds % 1000) * 1000000L};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, milliseconds < 0 ? nullptr : &limit, nullptr, 0);
}

inline void futex_wake_all(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

inline void pause_cpu() {
  __builtin_ia32_pause();
}

}  // namespace cudasim
