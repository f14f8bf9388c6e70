// SPDX-License-Identifier: Apache-2.0
// Does nothing. This library is a stand-in for a profiler that CUDA_INJECTION64_PATH names.
int InitializeInjection(void) {
  return 1;
}
