// SPDX-License-Identifier: Apache-2.0
// What a profiler is for the driver: a library that CUDA_INJECTION64_PATH names.
int InitializeInjection(void) {
  return 1;
}
