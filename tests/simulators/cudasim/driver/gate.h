// SPDX-License-Identifier: Apache-2.0
// The gate that every call into the driver passes, so that a process can be locked. While the gate is closed,
// new calls wait and running calls are counted until all have returned. A call that is made inside another
// call passes without waiting.
//
// Threads: all. After a fork the child starts with an open gate (forget()).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace cudasim {

using Deadline = std::chrono::steady_clock::time_point;
inline constexpr Deadline kNoDeadline = Deadline::max();
// Returns the milliseconds until the deadline, at most `limit`.
int milliseconds_left(Deadline deadline, int limit);

class Gate {
 public:
  void enter();
  void leave();
  // Closes the gate, and returns when no thread is inside. Returns false at the deadline; the gate is then
  // open again.
  bool close(Deadline deadline);
  void open();
  void forget();

 private:
  void wait_open();
  void wake_closer();
  std::atomic<std::uint32_t> inside_{0};
  std::atomic<std::uint32_t> closed_{0};
};

Gate& gate();

// The scope of a call. It holds the gate (if the call is gated), and sets the meaning of a null stream.
class CallScope {
 public:
  CallScope(bool gated, bool per_thread_stream);
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  bool gated_;
  bool outer_per_thread_;
};

// Returns whether the null stream is the thread's own stream, as in a call by its _ptds or _ptsz name.
bool null_stream_is_per_thread();

}  // namespace cudasim
