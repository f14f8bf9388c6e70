// SPDX-License-Identifier: Apache-2.0
// The driver under test. It is loaded at run time, so that one binary tests any driver; LD_LIBRARY_PATH
// selects the driver.
#pragma once

#include "tests/conformance/support/answers.h"

namespace conformance {

struct Api {
#define CKPT_CUDA(name) Call<decltype(&::name)> name;
#define CKPT_CUDA_OPTIONAL(name) Call<decltype(&::name)> name;
#include "libckpt/cuda/driver_api.def"
#include "tests/conformance/support/more_functions.def"
#undef CKPT_CUDA
};

// Returns the loaded driver, or null if there is none. If a driver lacks a required function, the process
// exits with a message that names the function.
const Api* load_api();
inline const Api& api() {
  return *load_api();
}

}  // namespace conformance

#define EXPECT_CUDA(expected, call) EXPECT_EQ(static_cast<int>(expected), static_cast<int>(call))
#define ASSERT_CUDA(expected, call) ASSERT_EQ(static_cast<int>(expected), static_cast<int>(call))
#define ASSERT_OK(call) ASSERT_CUDA(CUDA_SUCCESS, call)
#define EXPECT_OK(call) EXPECT_CUDA(CUDA_SUCCESS, call)
