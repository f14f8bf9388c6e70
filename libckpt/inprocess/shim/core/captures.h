// SPDX-License-Identifier: Apache-2.0
// The number of the process's streams that are being captured into graphs. A synchronization of a context
// breaks a capture on one of its streams, so the two exclude each other.
//   capture_begins();
//   if (driver_begins() != CUDA_SUCCESS) capture_ended();
//
//   const NoCapture none;
//   if (none) cuCtxSynchronize(); else ask_by_other_means();
// A capture also ends with its stream or its context. A capture of a thread's default stream ends with its
// thread. Each open capture is therefore identified by its stream.
// Threads: any. Errors: none. Ownership: none of the streams.
#pragma once

#include <vector>

#include "libckpt/base/clock.h"
#include "libckpt/inprocess/shim/core/real_driver.h"

namespace ckpt::shim {

// Announces a capture, before the driver is called. Waits for running synchronizations; work that was
// submitted by then ends normally.
void capture_begins() noexcept;
void capture_ended() noexcept;

// The stream on which a capture has begun. CU_STREAM_PER_THREAD means the calling thread's stream in this
// context.
struct CaptureOrigin {
  CUstream stream = nullptr;
  CUcontext context = nullptr;
};
// Notes a capture after its begin succeeded. From now on, the end of the stream also ends the capture.
void note_capture(const CaptureOrigin& origin) noexcept;
// Notes that a capture has ended. An unknown capture (a stream that only took part) is ignored.
void end_capture(const CaptureOrigin& origin) noexcept;

// The captures that end with a stream or a context. Make this object before the driver is called to end the
// stream or context, since the driver may reuse the handle at once. Without ended() the captures remain open.
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
    unsigned long thread = 0;  // the thread whose default stream this is; otherwise 0
  };

 private:
  std::vector<Known> taken_;
};

[[nodiscard]] bool captures_open() noexcept;
// Waits until no capture is open. Returns false if the deadline has passed.
[[nodiscard]] bool wait_for_captures(Nanos deadline) noexcept;

// A guard: while it exists and is true, no capture is open and none begins. Its thread must not wait for the
// program meanwhile.
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
