// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, found at run time as in NCCL: the libcuda.so.1 that the program has loaded or finds.
//
// Threads: any. Errors: ncclUnhandledCudaError, with the driver's own name of the error in the text.
#pragma once

#include <cuda.h>

#include "tests/simulators/ncclsim/base/result.h"

namespace ncclsim {

struct Driver {
#define NCCLSIM_DRIVER(name) decltype(&::name) name = nullptr;
#include "tests/simulators/ncclsim/driver/driver_functions.def"
#undef NCCLSIM_DRIVER
};

// Loads and initializes the driver once, and returns the same result each time.
ncclResult_t load_driver();
// Returns the driver. Call this after load_driver has succeeded.
const Driver& driver();

ncclResult_t cuda_result(CUresult result, const char* call);

// A scope in which a context is the thread's current context.
class Current {
 public:
  explicit Current(CUcontext context);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  [[nodiscard]] ncclResult_t result() const { return result_; }

 private:
  ncclResult_t result_;
};

// A scope in which the thread may allocate while a stream captures.
class RelaxedCapture {
 public:
  RelaxedCapture() { driver().cuThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { driver().cuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace ncclsim

#define NCCLSIM_CUDA(function, ...) \
  NCCLSIM_TRY(::ncclsim::cuda_result(::ncclsim::driver().function(__VA_ARGS__), #function))
