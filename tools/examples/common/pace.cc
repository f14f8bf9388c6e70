// SPDX-License-Identifier: Apache-2.0
#include "tools/examples/common/pace.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "libckpt/base/clock.h"

namespace ckpt::examples {
namespace {

constexpr std::int64_t kSlowStepNs = 100'000'000;

std::int64_t least_length_ns(std::uint64_t step, std::uint64_t steps, std::int64_t min_ns) {
  static const char* const hurry = std::getenv("GPUMIGRATE_TEST_HURRY");
  if (hurry == nullptr) return min_ns;
  if (::access(hurry, F_OK) == 0) return 0;
  return steps != 0 && step > steps / 2 ? std::max(min_ns, kSlowStepNs) : min_ns;
}

}  // namespace

void Pace::begin_step() {
  step_begin_ns = now_ns();
}

void Pace::end_step(std::uint64_t step, std::uint64_t steps, std::int64_t min_ns) {
  const std::int64_t due = step_begin_ns + least_length_ns(step, steps, min_ns);
  const timespec until{due / 1'000'000'000, due % 1'000'000'000};
  while (now_ns() < due && ::clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
  const std::int64_t end = now_ns();
  if (last_end_ns != 0 && end - last_end_ns > longest_gap_ns) {
    longest_gap_ns = end - last_end_ns;
    longest_gap_step_ns = end - step_begin_ns;
    longest_gap_step = step;
  }
  last_end_ns = end;
}

void Pace::forget_gap() {
  last_end_ns = now_ns();
}

std::string time_note(bool wanted) {
  if (!wanted) return {};
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  char text[48];
  std::snprintf(text, sizeof text, " at %lld.%06ld", static_cast<long long>(now.tv_sec), now.tv_nsec / 1000);
  return text;
}

}  // namespace ckpt::examples
