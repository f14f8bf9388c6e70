// SPDX-License-Identifier: Apache-2.0
// A stand-in for a profiler: a library that CUDA_INJECTION64_PATH names.
int InitializeInjection(void) {
  return 1;
}
