// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/transport/lane_waker.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace ckpt::transport {

Result<std::unique_ptr<LaneWaker>> LaneWaker::create() {
  UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return Error::from_errno("Cannot create a lane's event descriptor");
  return std::unique_ptr<LaneWaker>(new LaneWaker(std::move(event)));
}

void LaneWaker::wake() noexcept {
  if (woken_.exchange(true)) return;
  const std::uint64_t one = 1;
  (void)!::write(event_.get(), &one, sizeof one);
}

void LaneWaker::drain() noexcept {
  std::uint64_t written = 0;
  (void)!::read(event_.get(), &written, sizeof written);
  woken_.exchange(false);  // cleared after the read: a thread that found the flag set before has its wake-up
                           // handled when this function returns
}

}  // namespace ckpt::transport
