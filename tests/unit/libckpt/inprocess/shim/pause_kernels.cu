// SPDX-License-Identifier: Apache-2.0
// A kernel that lasts until it is told to end.
#include <cudasim/kernel.h>

CUDASIM_KERNEL(run_until, uint32_t* told) {
  CUDASIM_THREAD_ZERO() {
    volatile uint32_t* word = told;
    while (*word == 0) {
    }
  }
}
