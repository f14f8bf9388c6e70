// SPDX-License-Identifier: Apache-2.0
// The real driver behind the shim: its functions by name, each of cuda.h's type. The driver is opened at the
// first use and never closed. It is the file that GPUMIGRATE_REAL_CUDA names. Otherwise it is the
// libcuda.so.1 that the loader would find without the shim (LD_LIBRARY_PATH, the loader's cache, the usual
// folders).
// Threads: any. Errors: functions that the real driver lacks are null. Without a driver all functions are
// null (real_driver_error has the reason).
#pragma once

#define __CUDA_API_VERSION_INTERNAL  // declares every version of every function under its exported name
#include <cuda.h>

#include <string>

#include "libckpt/cuda/interop_functions.h"

namespace ckpt::shim {

struct RealDriver {
#define CKPT_DRIVER_FUNCTION(name, kind) decltype(&::name) name = nullptr;
#include "libckpt/inprocess/shim/core/every_function.def"
#undef CKPT_DRIVER_FUNCTION
};

[[nodiscard]] const RealDriver& real() noexcept;

// Returns dlopen's handle of the real driver. Returns null if the driver could not be opened.
[[nodiscard]] void* real_driver_handle() noexcept;
// Returns why there is no real driver. Returns an empty string if there is one.
[[nodiscard]] const std::string& real_driver_error() noexcept;
// Returns true on the thread that is opening the driver: calls that the driver makes at its own start are not
// the program's.
[[nodiscard]] bool driver_is_opening() noexcept;
// Returns the result of a call for which the real driver has no function: CUDA_ERROR_NO_DEVICE without a
// driver, CUDA_ERROR_NOT_SUPPORTED with an older driver.
[[nodiscard]] CUresult lacking_answer() noexcept;

}  // namespace ckpt::shim
