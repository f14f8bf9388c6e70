/* SPDX-License-Identifier: Apache-2.0
 * A library linked with -lcuda that a program loads with RTLD_DEEPBIND: its own libraries' names come before
 * the preloaded ones. */
#include <cuda.h>

int allocate_by_plugin(void) {
  CUcontext context = NULL;
  CUdeviceptr memory = 0;
  if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return -1;
  return cuMemAlloc(&memory, 16 << 20);
}
