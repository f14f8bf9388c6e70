// SPDX-License-Identifier: Apache-2.0
// A one-shot timer on CLOCK_BOOTTIME. Its descriptor becomes readable when the timer expires.
// Threads: none. Ownership: the descriptor. Errors: kIo.
#pragma once

#include "libckpt/base/clock.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::keeper {

class Timer {
 public:
  static Result<Timer> create();
  [[nodiscard]] int fd() const { return fd_.get(); }
  void set(Nanos at_ns);  // sets the expiry; for a past time, the timer expires at once
  void clear();
  // Returns true once after the timer expired.
  bool consume_expiry();

 private:
  explicit Timer(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace ckpt::keeper
