// SPDX-License-Identifier: Apache-2.0
// What runs in place of a traced program's kernels.
#include <cudasim/kernel.h>

CUDASIM_KERNEL(replayed_kernel) {}
