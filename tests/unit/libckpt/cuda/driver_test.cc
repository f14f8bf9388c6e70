// SPDX-License-Identifier: Apache-2.0
#include "libckpt/cuda/driver.h"

#include <gtest/gtest.h>

#include "libckpt/cuda/module.h"

namespace ckpt {
namespace {

const DriverApi& api() {
  const Result<const DriverApi*> loaded = load_driver();
  if (!loaded.has_value()) {
    std::fprintf(stderr, "%s\n", loaded.error().to_string().c_str());
    std::abort();
  }
  return **loaded;
}

TEST(Driver, DriverTableIsLoadedOnceAndCompletely) {
  EXPECT_EQ(*load_driver(), &api());
#define CKPT_CUDA(name) EXPECT_NE(api().name, nullptr) << #name;
#include "libckpt/cuda/driver_api.def"
#undef CKPT_CUDA
}

Result<void> call_that_fails() {
  CUdevice device = 0;
  CKPT_CUDA_TRY(api(), cuDeviceGet(&device, 1000));
  return ok();
}

TEST(Driver, ErrorNamesTheCallAndItsResult) {
  ASSERT_EQ(api().cuInit(0), CUDA_SUCCESS);
  const Result<void> called = call_that_fails();
  ASSERT_FALSE(called.has_value());
  const Error& error = called.error();
  EXPECT_EQ(error.domain(), ErrorDomain::kCuda);
  EXPECT_EQ(error.native(), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_NE(error.message().find("cuDeviceGet(&device, 1000)"), std::string::npos);
  EXPECT_NE(error.message().find("CUDA_ERROR_INVALID_DEVICE"), std::string::npos);
}

TEST(Driver, DriverErrorsAreMappedToErrorCodes) {
  EXPECT_EQ(cuda_error(api(), CUDA_ERROR_OUT_OF_MEMORY, "x").code(), ErrorCode::kOutOfMemory);
  EXPECT_EQ(cuda_error(api(), CUDA_ERROR_ILLEGAL_ADDRESS, "x").code(), ErrorCode::kDevice);
  EXPECT_EQ(cuda_error(api(), CUDA_ERROR_ECC_UNCORRECTABLE, "x").code(), ErrorCode::kDevice);
  EXPECT_EQ(cuda_error(api(), CUDA_ERROR_NO_BINARY_FOR_GPU, "x").code(), ErrorCode::kNotSupported);
  EXPECT_EQ(cuda_error(api(), CUDA_ERROR_INVALID_VALUE, "x").code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(is_sticky(CUDA_ERROR_LAUNCH_FAILED));
  EXPECT_FALSE(is_sticky(CUDA_ERROR_OUT_OF_MEMORY));
  EXPECT_FALSE(is_sticky(CUDA_ERROR_NOT_READY));
}

TEST(Driver, ContextScopeRestoresThePreviousContext) {
  const Device first = std::move(*Device::open(0));
  const Device second = std::move(*Device::open(1));
  EXPECT_NE(first.context(), second.context());
  CUcontext current = nullptr;
  const ContextScope outer(first);
  {
    const ContextScope inner(second);
    ASSERT_EQ(api().cuCtxGetCurrent(&current), CUDA_SUCCESS);
    EXPECT_EQ(current, second.context());
  }
  ASSERT_EQ(api().cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, first.context());
}

TEST(Driver, MissingDeviceIsAnError) {
  EXPECT_FALSE(Device::open(99).has_value());
}

TEST(Module, MissingKernelSetErrorNamesTheVariable) {
  const Device device = std::move(*Device::open(0));
  const ContextScope scope(device);
  const Result<Module> module = Module::load(api(), "no_such_kernels");
  ASSERT_FALSE(module.has_value());
  EXPECT_EQ(module.error().code(), ErrorCode::kNotFound);
  EXPECT_NE(module.error().message().find("CKPT_KERNEL_DIR"), std::string::npos);
}

}  // namespace
}  // namespace ckpt
