// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/machine/cores.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace ckpt {

unsigned usable_cores() noexcept {
  cpu_set_t set;
  // sched_getaffinity fails on machines with more processors than fit into the set. All processors of the
  // machine are counted then.
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace ckpt
