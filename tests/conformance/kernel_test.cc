// SPDX-License-Identifier: Apache-2.0
// Tests of modules, launches, arguments and faults.
#include <malloc.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "tests/conformance/support/support.h"

namespace conformance {
namespace {

class KernelTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    module_ = load_kernels();
    ASSERT_NE(nullptr, module_);
    ASSERT_OK(api().cuMemAlloc_v2(&memory_, 4 * kMiB));
  }
  void TearDown() override {
    if (memory_ != 0) {
      EXPECT_OK(api().cuMemFree_v2(memory_));
      EXPECT_OK(api().cuModuleUnload(module_));
    }
    DriverTest::TearDown();
  }
  CUmodule module_ = nullptr;
  CUdeviceptr memory_ = 0;
};

TEST_F(KernelTest, AKernelVisitsEveryElementOnce) {
  for (const std::uint64_t count : {1U, 255U, 4097U, 100000U}) {
    ASSERT_OK(api().cuMemsetD8_v2(memory_, 0, 4 * kMiB));
    ASSERT_OK(
        launch(kernel(module_, "fill"), 7, 64, nullptr, std::uint64_t{memory_}, std::uint32_t{5}, count));
    ASSERT_OK(launch(kernel(module_, "add_one"), 3, 32, nullptr, std::uint64_t{memory_}, count));
    const std::vector<std::uint32_t> words = read_words(memory_, count + 1);
    for (std::uint32_t i = 0; i < count; i++) ASSERT_EQ(6 + i, words[i]);
    EXPECT_EQ(0U, words[count]);
  }
}

struct Pair {
  std::uint8_t small;
  std::uint64_t large;
};

TEST_F(KernelTest, KernelsReceiveArgumentsOfEverySize) {
  const Pair pair{9, 1ULL << 40};
  ASSERT_OK(launch(kernel(module_, "mixed"), 1, 1, nullptr, std::uint8_t{3}, std::uint64_t{1} << 50,
                   std::uint16_t{500}, pair, std::uint64_t{memory_}));
  std::uint64_t out[5] = {};
  ASSERT_OK(api().cuMemcpyDtoH_v2(out, memory_, sizeof out));
  const std::uint64_t expected[5] = {3, 1ULL << 50, 500, 9, 1ULL << 40};
  EXPECT_EQ(0, std::memcmp(expected, out, sizeof out));
}

TEST_F(KernelTest, KernelArgumentsCanBePassedInAPackedBuffer) {
  struct {
    std::uint64_t out;
    std::uint32_t first;
    std::uint64_t count;
  } packed{memory_, 40, 3};
  std::size_t bytes = sizeof packed;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  ASSERT_OK(api().cuLaunchKernel(kernel(module_, "fill"), 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra));
  EXPECT_EQ((std::vector<std::uint32_t>{40, 41, 42}), read_words(memory_, 3));
}

TEST_F(KernelTest, KernelArgumentsAreCopiedAtTheLaunch) {
  std::uint64_t out = memory_;
  std::uint32_t first = 100;
  std::uint64_t count = 1;
  void* arguments[] = {&out, &first, &count};
  CUstream stream = nullptr;
  ASSERT_OK(api().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  Gate gate(stream);
  ASSERT_OK(api().cuLaunchKernel(kernel(module_, "fill"), 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
  first = 200;
  gate.open();
  ASSERT_OK(api().cuStreamSynchronize(stream));
  EXPECT_EQ(100U, read_words(memory_, 1)[0]);
  EXPECT_OK(api().cuStreamDestroy_v2(stream));
}

TEST_F(KernelTest, ThreadsOfABlockShareMemory) {
  constexpr std::uint32_t kWidth = 1000;
  ASSERT_OK(launch(kernel(module_, "fill"), 4, 64, nullptr, std::uint64_t{memory_}, std::uint32_t{0},
                   std::uint64_t{4 * kWidth}));
  std::uint64_t in = memory_;
  std::uint64_t out = memory_ + kMiB;
  std::uint32_t width = kWidth;
  void* arguments[] = {&in, &out, &width};
  ASSERT_OK(api().cuLaunchKernel(kernel(module_, "row_sums"), 4, 1, 1, 128, 1, 1, 512, nullptr, arguments,
                                 nullptr));
  const std::vector<std::uint32_t> sums = read_words(out, 4);
  for (std::uint32_t row = 0; row < 4; row++)
    EXPECT_EQ(row * kWidth * kWidth + kWidth * (kWidth - 1) / 2, sums[row]);
}

TEST_F(KernelTest, ModuleVariablesAreInDeviceMemory) {
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  ASSERT_OK(api().cuModuleGetGlobal_v2(&address, &bytes, module_, "launches"));
  ASSERT_EQ(8U, bytes);
  std::uint64_t value = 40;
  ASSERT_OK(api().cuMemcpyHtoD_v2(address, &value, sizeof value));
  for (int i = 0; i < 2; i++) ASSERT_OK(launch(kernel(module_, "count_launch"), 1, 32, nullptr));
  ASSERT_OK(api().cuMemcpyDtoH_v2(&value, address, sizeof value));
  EXPECT_EQ(42U, value);
  EXPECT_NE(CUDA_SUCCESS, api().cuMemcpyDtoH_v2(&value, address + 8, 1 * kMiB));
  CUmodule second = load_kernels();
  CUdeviceptr other = 0;
  ASSERT_OK(api().cuModuleGetGlobal_v2(&other, &bytes, second, "launches"));
  ASSERT_OK(api().cuMemcpyDtoH_v2(&value, other, sizeof value));
  EXPECT_EQ(0U, value) << "two modules of one image have variables of their own";
  EXPECT_OK(api().cuModuleUnload(second));
}

TEST_F(KernelTest, AnUnloadedModuleUsesNoMemory) {
  const auto in_use = [] {
    const struct mallinfo2 info = ::mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  constexpr int kTimes = 100;
  constexpr std::size_t kMaxOfEach = 4 << 10;  // the permitted growth of host memory for each load, less than
                                               // the size of any image
  std::size_t before = 0;
  for (int i = -kTimes; i < kTimes; i++) {
    if (i == 0) before = in_use();  // the first loads fill pools
    ASSERT_OK(api().cuModuleUnload(load_kernels()));
  }
  EXPECT_LT(in_use(), before + kTimes * kMaxOfEach);
}

TEST_F(KernelTest, InvalidLaunchesAreRefused) {
  const CUfunction fill = kernel(module_, "fill");
  void* arguments[] = {&memory_, &memory_, &memory_};
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              api().cuLaunchKernel(fill, 0, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              api().cuLaunchKernel(fill, 1, 1, 1, 4096, 1, 1, 0, nullptr, arguments, nullptr));
  int limit = 0;
  ASSERT_OK(api().cuFuncGetAttribute(&limit, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, fill));
  EXPECT_EQ(1024, limit);
}

TEST_F(KernelTest, UnknownKernelAndVariableNamesAreNotFound) {
  CUfunction function = nullptr;
  EXPECT_CUDA(CUDA_ERROR_NOT_FOUND, api().cuModuleGetFunction(&function, module_, "no_such_kernel"));
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  EXPECT_CUDA(CUDA_ERROR_NOT_FOUND,
              api().cuModuleGetGlobal_v2(&address, &bytes, module_, "no_such_variable"));
  CUmodule missing = nullptr;
  EXPECT_CUDA(CUDA_ERROR_FILE_NOT_FOUND, api().cuModuleLoad(&missing, "/no/such/file.fatbin"));
}

TEST_F(KernelTest, FilesWithoutDeviceCodeAreRefused) {
  CUmodule module = nullptr;
  const char garbage[4096] = "this is no device code";
  EXPECT_NE(CUDA_SUCCESS, api().cuModuleLoadData(&module, garbage));
  // The file is a valid shared object, but without kernels: the test itself.
  EXPECT_NE(CUDA_SUCCESS, api().cuModuleLoad(&module, "/proc/self/exe"));
}

TEST_F(KernelTest, ModulesLoadFromMemory) {
  int accepted = 0;
  for (const std::string& path : kernel_images()) {
    std::ifstream file(path, std::ios::binary);
    std::vector<char> image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (image.empty()) continue;
    CUmodule module = nullptr;
    if (api().cuModuleLoadData(&module, image.data()) != CUDA_SUCCESS) continue;
    accepted++;
    ASSERT_OK(launch(kernel(module, "fill"), 1, 32, nullptr, std::uint64_t{memory_}, std::uint32_t{7},
                     std::uint64_t{1}));
    EXPECT_EQ(7U, read_words(memory_, 1)[0]);
    EXPECT_OK(api().cuModuleUnload(module));
  }
  EXPECT_EQ(1, accepted) << "a driver takes its own kind of image and no other";
}

TEST_F(KernelTest, EachLoadedModuleHasItsOwnVariables) {
  const CUmodule second = load_kernels();
  CUdeviceptr one = 0;
  CUdeviceptr two = 0;
  ASSERT_OK(api().cuModuleGetGlobal_v2(&one, nullptr, module_, "launches"));
  ASSERT_OK(api().cuModuleGetGlobal_v2(&two, nullptr, second, "launches"));
  EXPECT_NE(one, two);
  for (int i = 0; i < 3; i++) ASSERT_OK(launch(kernel(module_, "count_launch"), 1, 1, nullptr));
  ASSERT_OK(launch(kernel(second, "count_launch"), 1, 1, nullptr));
  EXPECT_EQ(3U, read_words(one, 1)[0]);
  EXPECT_EQ(1U, read_words(two, 1)[0]);
  EXPECT_OK(api().cuModuleUnload(second));
  ASSERT_OK(launch(kernel(module_, "count_launch"), 1, 1, nullptr));
  EXPECT_EQ(4U, read_words(one, 1)[0]);
}

TEST_F(KernelTest, FunctionsOfAnotherContextAreRefused) {
  CUcontext other = nullptr;
  const CUfunction fill = kernel(module_, "fill");
  ASSERT_OK(api().cuCtxCreate_v2(&other, 0, 0));
  EXPECT_NE(CUDA_SUCCESS,
            launch(fill, 1, 1, nullptr, std::uint64_t{memory_}, std::uint32_t{0}, std::uint64_t{1}));
  EXPECT_OK(api().cuCtxDestroy_v2(other));
  ASSERT_OK(api().cuCtxSetCurrent(context_));
}

TEST_F(KernelTest, AnIllegalAddressAffectsOnlyItsOwnContext) {
  Child child("store_illegally");
  EXPECT_EQ(0, child.wait());
  EXPECT_OK(api().cuMemsetD8_v2(memory_, 1, 16));
  EXPECT_OK(api().cuCtxSynchronize());
}

}  // namespace
}  // namespace conformance
