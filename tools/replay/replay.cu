// SPDX-License-Identifier: Apache-2.0
// A kernel that runs in place of a traced program's kernels.
#include <cudasim/kernel.h>

CUDASIM_KERNEL(replayed_kernel) {}
