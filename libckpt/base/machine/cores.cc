// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/machine/cores.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace ckpt {

unsigned usable_cores() noexcept {
  cpu_set_t set;
  // Fails on machines with more processors than the set has places for: there all of them count.
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace ckpt
