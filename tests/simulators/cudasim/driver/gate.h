// SPDX-License-Identifier: Apache-2.0
// Every call into the driver passes this gate, so that a process can be locked. While the gate is closed new
// calls wait and those inside are counted out. Calls that another call makes pass freely.
//
// Threads: all. After a fork the child starts with an open gate (forget()).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace cudasim {

using Deadline = std::chrono::steady_clock::time_point;
inline constexpr Deadline kNoDeadline = Deadline::max();
// Milliseconds until then, at most `most`.
int milliseconds_left(Deadline deadline, int most);

class Gate {
 public:
  void enter();
  void leave();
  // Returns when no thread is inside; false at the deadline, and the gate is open again.
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

// The scope of a call: holds the gate (if the call is gated), and sets what a null stream means.
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

// Whether the null stream is the thread's own: in a call by its _ptds or _ptsz name.
bool null_stream_is_per_thread();

}  // namespace cudasim
