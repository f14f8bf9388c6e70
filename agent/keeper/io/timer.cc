// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/io/timer.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>

namespace ckpt::keeper {

Result<Timer> Timer::create() {
  UniqueFd fd(::timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!fd) return Error::from_errno("Cannot create a timer");
  return Timer(std::move(fd));
}

void Timer::set(Nanos at_ns) {
  const Nanos at = std::max<Nanos>(at_ns, 1);  // 0 would disarm the timer
  itimerspec spec{};
  spec.it_value.tv_sec = at / 1'000'000'000;
  spec.it_value.tv_nsec = at % 1'000'000'000;
  ::timerfd_settime(fd_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
}

void Timer::clear() {
  const itimerspec none{};
  ::timerfd_settime(fd_.get(), 0, &none, nullptr);
}

bool Timer::consume_expiry() {
  std::uint64_t times = 0;
  return ::read(fd_.get(), &times, sizeof times) == static_cast<ssize_t>(sizeof times);
}

}  // namespace ckpt::keeper
