// SPDX-License-Identifier: Apache-2.0
// Tests of libraries, through which the CUDA runtime loads its code since CUDA 12. A library belongs to no
// context until a part of it is used in one.
#include <cstring>

#include "tests/conformance/support/support.h"

namespace conformance {
namespace {

class LibraryTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped()) return;
    for (const std::string& path : kernel_images()) {
      if (library_ == nullptr && load(path, &library_) == CUDA_SUCCESS) image_ = path;
    }
    ASSERT_NE(nullptr, library_) << "a driver takes one of the images";
  }
  void TearDown() override {
    if (library_ != nullptr) {
      EXPECT_OK(api().cuLibraryUnload(library_));
    }
    DriverTest::TearDown();
  }
  static CUresult load(const std::string& path, CUlibrary* library) {
    return api().cuLibraryLoadFromFile(library, path.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  }
  [[nodiscard]] CUkernel kernel_of(const char* name) const {
    CUkernel kernel = nullptr;
    EXPECT_OK(api().cuLibraryGetKernel(&kernel, library_, name));
    return kernel;
  }
  [[nodiscard]] CUdeviceptr launches() const {
    CUdeviceptr address = 0;
    std::size_t bytes = 0;
    EXPECT_OK(api().cuLibraryGetGlobal(&address, &bytes, library_, "launches"));
    EXPECT_EQ(8U, bytes);
    return address;
  }
  CUlibrary library_ = nullptr;
  std::string image_;
};

TEST_F(LibraryTest, AKernelIsLaunchedByItsHandleOrByItsFunction) {
  const CUkernel count = kernel_of("count_launch");
  EXPECT_EQ(count, kernel_of("count_launch"));
  CUfunction function = nullptr;
  ASSERT_OK(api().cuKernelGetFunction(&function, count));
  ASSERT_OK(launch(function, 1, 1, nullptr));
  // cudaLaunchKernel makes the same call.
  ASSERT_OK(launch(reinterpret_cast<CUfunction>(count), 1, 1, nullptr));
  EXPECT_EQ(2U, read_words(launches(), 1)[0]);
  int threads = 0;
  ASSERT_OK(api().cuKernelGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, count, device_));
  EXPECT_EQ(1024, threads);
}

TEST_F(LibraryTest, AKernelReportsItsNameLibraryAndParameters) {
  const CUkernel mixed = kernel_of("mixed");
  const char* name = nullptr;
  ASSERT_OK(api().cuKernelGetName(&name, mixed));
  EXPECT_STREQ("mixed", name);
  CUlibrary library = nullptr;
  ASSERT_OK(api().cuKernelGetLibrary(&library, mixed));
  EXPECT_EQ(library_, library);
  std::size_t offset = 0;
  std::size_t bytes = 0;
  ASSERT_OK(api().cuKernelGetParamInfo(mixed, 1, &offset, &bytes));
  EXPECT_EQ(8U, offset);
  EXPECT_EQ(8U, bytes);
  ASSERT_OK(api().cuKernelGetParamInfo(mixed, 3, &offset, &bytes));
  EXPECT_EQ(24U, offset);
  EXPECT_EQ(16U, bytes);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuKernelGetParamInfo(mixed, 5, &offset, &bytes));
}

TEST_F(LibraryTest, EachContextHasItsOwnLibraryVariables) {
  const CUkernel count = kernel_of("count_launch");
  ASSERT_OK(launch(reinterpret_cast<CUfunction>(count), 1, 1, nullptr));
  EXPECT_EQ(1U, read_words(launches(), 1)[0]);
  CUmodule module = nullptr;
  ASSERT_OK(api().cuLibraryGetModule(&module, library_));
  CUdeviceptr by_module = 0;
  ASSERT_OK(api().cuModuleGetGlobal_v2(&by_module, nullptr, module, "launches"));
  EXPECT_EQ(launches(), by_module);
  CUcontext other = nullptr;
  ASSERT_OK(api().cuCtxCreate_v2(&other, 0, 0));
  EXPECT_NE(by_module, launches());
  EXPECT_EQ(0U, read_words(launches(), 1)[0]);
  ASSERT_OK(launch(reinterpret_cast<CUfunction>(count), 1, 1, nullptr));
  ASSERT_OK(launch(reinterpret_cast<CUfunction>(count), 1, 1, nullptr));
  EXPECT_EQ(2U, read_words(launches(), 1)[0]);
  EXPECT_OK(api().cuCtxDestroy_v2(other));
  ASSERT_OK(api().cuCtxSetCurrent(context_));
  EXPECT_EQ(1U, read_words(launches(), 1)[0]);
}

TEST_F(LibraryTest, MissingOrUnloadedKernelsAreNotFound) {
  CUkernel kernel = nullptr;
  CUdeviceptr address = 0;
  EXPECT_CUDA(CUDA_ERROR_NOT_FOUND, api().cuLibraryGetKernel(&kernel, library_, "no_such_kernel"));
  EXPECT_CUDA(CUDA_ERROR_NOT_FOUND,
              api().cuLibraryGetGlobal(&address, nullptr, library_, "no_such_variable"));
  CUlibrary missing = nullptr;
  EXPECT_CUDA(CUDA_ERROR_FILE_NOT_FOUND, load("/no/such/file", &missing));
  // A file that contains no code may be refused only later, since libraries are loaded lazily.
  if (load("/etc/passwd", &missing) == CUDA_SUCCESS) {
    EXPECT_NE(CUDA_SUCCESS, api().cuLibraryGetKernel(&kernel, missing, "count_launch"));
  }
}

TEST_F(LibraryTest, AGraphLaunchesALibraryKernel) {
  CUstream stream = nullptr;
  ASSERT_OK(api().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUgraph graph = nullptr;
  CUgraphExec ready = nullptr;
  const auto count = reinterpret_cast<CUfunction>(kernel_of("count_launch"));
  ASSERT_OK(launch(count, 1, 1, stream));
  ASSERT_OK(api().cuStreamSynchronize(stream));
  ASSERT_OK(api().cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_OK(launch(count, 1, 1, stream));
  ASSERT_OK(api().cuStreamEndCapture(stream, &graph));
  ASSERT_OK(api().cuGraphInstantiateWithFlags(&ready, graph, 0));
  ASSERT_OK(api().cuGraphLaunch(ready, stream));
  ASSERT_OK(api().cuGraphLaunch(ready, stream));
  ASSERT_OK(api().cuStreamSynchronize(stream));
  EXPECT_EQ(3U, read_words(launches(), 1)[0]);
  EXPECT_OK(api().cuGraphExecDestroy(ready));
  EXPECT_OK(api().cuGraphDestroy(graph));
  EXPECT_OK(api().cuStreamDestroy_v2(stream));
}

}  // namespace
}  // namespace conformance
