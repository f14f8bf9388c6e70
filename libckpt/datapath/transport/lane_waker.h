// SPDX-License-Identifier: Apache-2.0
// A descriptor that ends a lane's wait from any thread. It is polled together with the connection's
// descriptor.
// Threads: any thread may call wake(); the rest belongs to the lane's thread. Ownership: owns the descriptor.
// Errors: errno of create().
#pragma once

#include <atomic>
#include <memory>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::transport {

class LaneWaker {
 public:
  static Result<std::unique_ptr<LaneWaker>> create();

  // Returns the descriptor, to be polled for POLLIN.
  [[nodiscard]] int fd() const noexcept { return event_.get(); }
  void wake() noexcept;
  // Resets the descriptor after it was ready.
  void drain() noexcept;

 private:
  explicit LaneWaker(UniqueFd event) : event_(std::move(event)) {}
  UniqueFd event_;
  std::atomic<bool> woken_{false};  // whether the descriptor was written and not read, so that it need not be
                                    // written again
};

}  // namespace ckpt::transport
