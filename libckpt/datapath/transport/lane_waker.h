// SPDX-License-Identifier: Apache-2.0
// Ends a lane's wait from any thread: a descriptor to poll beside the connection's.
// Threads: wake() any, the rest the lane's. Ownership: owns the descriptor. Errors: errno of create().
#pragma once

#include <atomic>
#include <memory>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::transport {

class LaneWaker {
 public:
  static Result<std::unique_ptr<LaneWaker>> create();

  // To be polled for POLLIN.
  [[nodiscard]] int fd() const noexcept { return event_.get(); }
  void wake() noexcept;
  // The descriptor was ready.
  void drain() noexcept;

 private:
  explicit LaneWaker(UniqueFd event) : event_(std::move(event)) {}
  UniqueFd event_;
  std::atomic<bool> woken_{false};  // it has been written and not read: no need to write again
};

}  // namespace ckpt::transport
