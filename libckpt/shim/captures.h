// SPDX-License-Identifier: Apache-2.0
// How many streams of the process are being captured into graphs, and who must not meet a capture: a synchronization of a context
// breaks those of its streams.
//   capture_begins();  result = the driver's begin;  if it failed: capture_ended();
//   const NoCapture none;  if (none) cuCtxSynchronize();  else ask in another way
// Threads: any. A count that is too high (a capture that ended with its stream) costs time, and a pause that times out.
#pragma once

#include "libckpt/base/clock.h"

namespace ckpt::shim {

// Before the driver is asked: waits for the synchronizations that have begun (what is submitted by then ends by itself).
void capture_begins() noexcept;
void capture_ended() noexcept;
[[nodiscard]] bool captures_open() noexcept;
// Until there is none, or the deadline: false.
[[nodiscard]] bool wait_for_captures(Nanos deadline) noexcept;

// While it stands and is true, no capture is open and none begins. Its thread must not wait for the program meanwhile.
class NoCapture {
 public:
  NoCapture() noexcept;
  ~NoCapture();
  NoCapture(const NoCapture&) = delete;
  NoCapture& operator=(const NoCapture&) = delete;
  [[nodiscard]] explicit operator bool() const noexcept { return holds_; }

 private:
  bool holds_ = false;
};

}  // namespace ckpt::shim
