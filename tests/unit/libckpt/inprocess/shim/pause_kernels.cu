// SPDX-License-Identifier: Apache-2.0
// A kernel that runs until its flag is set.
#include <cudasim/kernel.h>

CUDASIM_KERNEL(run_until, uint32_t* flag) {
  CUDASIM_THREAD_ZERO() {
    volatile uint32_t* word = flag;
    while (*word == 0) {
    }
  }
}
