// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/ncclsim/transport/descriptor.h"

#include <sys/eventfd.h>

#include <cstdint>

namespace ncclsim {

Stop::Stop() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Stop::set() {
  set_ = true;
  const std::uint64_t one = 1;
  // The write fails only if the event is already set.
  [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
}

}  // namespace ncclsim
