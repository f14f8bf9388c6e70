// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 for the probe's tests. Every call is passed on to the driver that REAL_CUDA names. The added
// cuCheckpointProcess* functions only store the state and obey PROBE_TEST ("" succeed, "hang", "die" or
// "fail" in Checkpoint). Only the caller's process knows the state, which suffices for a process that makes
// all the calls.
// Threads: one.
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long (*real(const char* name))(long, long, long, long, long, long, long, long, long, long, long) {
  static void* library;
  if (library == NULL) library = dlopen(getenv("REAL_CUDA"), RTLD_NOW | RTLD_LOCAL);
  void* found = library != NULL ? dlsym(library, name) : NULL;
  if (found == NULL) abort();
  return (long (*)(long, long, long, long, long, long, long, long, long, long, long))found;
}

// All arguments of these functions are integers or pointers, at most eleven. The System V ABI passes such
// arguments on unchanged.
#define FORWARD(name)                                                                                 \
  long name(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k) { \
    return real(#name)(a, b, c, d, e, f, g, h, i, j, k);                                              \
  }
FORWARD(cuInit)
FORWARD(cuGetErrorName)
FORWARD(cuDriverGetVersion)
FORWARD(cuDeviceGetCount)
FORWARD(cuDeviceGet)
FORWARD(cuDeviceGetName)
FORWARD(cuDeviceGetUuid_v2)
FORWARD(cuDevicePrimaryCtxRetain)
FORWARD(cuCtxSetCurrent)
FORWARD(cuCtxSynchronize)
FORWARD(cuMemAlloc_v2)
FORWARD(cuMemcpyHtoD_v2)
FORWARD(cuMemcpyDtoH_v2)
FORWARD(cuMemGetAllocationGranularity)
FORWARD(cuMemAddressReserve)
FORWARD(cuMemCreate)
FORWARD(cuMemMap)
FORWARD(cuMemSetAccess)
FORWARD(cuMemUnmap)
FORWARD(cuMemRelease)
FORWARD(cuMemExportToShareableHandle)
FORWARD(cuMemImportFromShareableHandle)
FORWARD(cuMemGetAllocationPropertiesFromHandle)
FORWARD(cuModuleLoadData)
FORWARD(cuModuleGetFunction)
FORWARD(cuLaunchKernel)

enum { kRunning, kLocked, kCheckpointed };
enum { kSuccess = 0, kInvalidValue = 1, kIllegalState = 401, kNotSupported = 801 };
static int state = kRunning;

static int change(int pid, int from, int to) {
  if (kill(pid, 0) != 0) return kInvalidValue;
  if (state != from) return kIllegalState;
  state = to;
  return kSuccess;
}

int cuCheckpointProcessGetState(int pid, int* out) {
  (void)pid;
  *out = state;
  return kSuccess;
}
int cuCheckpointProcessLock(int pid, void* arguments) {
  (void)arguments;
  return change(pid, kRunning, kLocked);
}
int cuCheckpointProcessCheckpoint(int pid, void* arguments) {
  (void)arguments;
  const char* order = getenv("PROBE_TEST");
  if (order != NULL && strcmp(order, "hang") == 0) {
    for (;;) pause();
  }
  if (order != NULL && strcmp(order, "die") == 0) abort();
  if (order != NULL && strcmp(order, "fail") == 0) return kNotSupported;
  return change(pid, kLocked, kCheckpointed);
}
int cuCheckpointProcessRestore(int pid, void* arguments) {
  (void)arguments;
  return change(pid, kCheckpointed, kLocked);
}
int cuCheckpointProcessUnlock(int pid, void* arguments) {
  (void)arguments;
  return change(pid, kLocked, kRunning);
}
