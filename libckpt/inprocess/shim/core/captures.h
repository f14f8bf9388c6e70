// SPDX-License-Identifier: Apache-2.0
// How many streams of the process are being captured into graphs. A synchronization of a context breaks a
// capture on one of its streams, so the two exclude each other.
//   capture_begins();
//   if (driver_begins() != CUDA_SUCCESS) capture_ended();
//
//   const NoCapture none;
//   if (none) cuCtxSynchronize(); else ask_by_other_means();
// A capture also ends with its stream or its context. That of a thread's default stream ends with its thread.
// So each open capture is known by its stream.
// Threads: any. Errors: none. Ownership: none of the streams.
#pragma once

#include <vector>

#include "libckpt/base/clock.h"
#include "libckpt/inprocess/shim/core/real_driver.h"

namespace ckpt::shim {

// Before the driver is asked: waits for the synchronizations that have begun (what is submitted by then ends
// by itself).
void capture_begins() noexcept;
void capture_ended() noexcept;

// The stream that a capture has begun on. CU_STREAM_PER_THREAD: the calling thread's in this context.
struct CaptureOrigin {
  CUstream stream = nullptr;
  CUcontext context = nullptr;
};
// After a begin that succeeded. Its end, however it comes about, then is the capture's.
void note_capture(const CaptureOrigin& origin) noexcept;
// It has been ended; one that is not known (a stream that only took part) counts for nothing.
void end_capture(const CaptureOrigin& origin) noexcept;

// The captures that end with a stream or a context. Taken before the driver is asked to end it, since it may
// give the handle out again at once; without ended() they go on.
class EndingCaptures {
 public:
  explicit EndingCaptures(CUstream stream) noexcept;
  explicit EndingCaptures(CUcontext context) noexcept;
  ~EndingCaptures();
  EndingCaptures(const EndingCaptures&) = delete;
  EndingCaptures& operator=(const EndingCaptures&) = delete;
  void ended() noexcept;

  struct Known {
    CaptureOrigin origin;
    unsigned long thread = 0;  // of a thread's default stream; else 0
  };

 private:
  std::vector<Known> taken_;
};

[[nodiscard]] bool captures_open() noexcept;
// Until there is none, or the deadline: false.
[[nodiscard]] bool wait_for_captures(Nanos deadline) noexcept;

// While it stands and is true, no capture is open and none begins. Its thread must not wait for the program
// meanwhile.
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
