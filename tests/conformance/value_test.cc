// SPDX-License-Identifier: Apache-2.0
// Tests of streams that write a word of memory, or wait for one.
#include <atomic>

#include "tests/conformance/support/support.h"

namespace conformance {
namespace {

class ValueTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_OK(api().cuMemHostAlloc(reinterpret_cast<void**>(&words_), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    ASSERT_OK(api().cuMemHostGetDevicePointer_v2(&there_, words_, 0));
    for (int i = 0; i < 16; ++i) words_[i] = 0;
    ASSERT_OK(api().cuMemAlloc_v2(&memory_, 4096));
    ASSERT_OK(api().cuMemsetD8_v2(memory_, 0, 4096));
    ASSERT_OK(api().cuCtxSynchronize());  // the new stream does not wait for the memset
    ASSERT_OK(api().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  }
  void TearDown() override {
    if (stream_ != nullptr) {
      EXPECT_OK(api().cuStreamSynchronize(stream_));
      EXPECT_OK(api().cuStreamDestroy_v2(stream_));
      EXPECT_OK(api().cuMemFree_v2(memory_));
      EXPECT_OK(api().cuMemFreeHost(words_));
    }
    DriverTest::TearDown();
  }
  // Stores a word from the host, so that a waiting device sees the word.
  void write(int word, std::uint32_t value) const { std::atomic_ref(words_[word]).store(value); }

  std::uint32_t* words_ = nullptr;
  CUdeviceptr there_ = 0;
  CUdeviceptr memory_ = 0;
  CUstream stream_ = nullptr;
};

TEST_F(ValueTest, AStreamWritesValuesToMemory) {
  ASSERT_OK(api().cuStreamWriteValue32_v2(stream_, memory_ + 4, 77, 0));
  ASSERT_OK(api().cuStreamWriteValue32_v2(stream_, there_, 78, 0));
  ASSERT_OK(api().cuStreamWriteValue64_v2(stream_, memory_ + 8, 0x100000005ULL, 0));
  ASSERT_OK(api().cuStreamSynchronize(stream_));
  EXPECT_EQ((std::vector<std::uint32_t>{0, 77, 5, 1}), read_words(memory_, 4));
  EXPECT_EQ(78U, words_[0]);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuStreamWriteValue32_v2(stream_, memory_ + 2, 1, 0));
}

TEST_F(ValueTest, AStreamWaitsForAValueWrittenByTheHost) {
  ASSERT_OK(api().cuStreamWaitValue32_v2(stream_, there_, 3, CU_STREAM_WAIT_VALUE_GEQ));
  ASSERT_OK(api().cuStreamWriteValue32_v2(stream_, memory_, 1, 0));
  write(0, 2);
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, api().cuStreamQuery(stream_));
  write(0, 4);
  ASSERT_OK(api().cuStreamSynchronize(stream_));
  EXPECT_EQ(1U, read_words(memory_, 1)[0]);
}

TEST_F(ValueTest, AStreamWaitsForAValueWrittenByAnotherStream) {
  CUstream other = nullptr;
  ASSERT_OK(api().cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  ASSERT_OK(api().cuStreamWaitValue64_v2(stream_, memory_ + 64, 9, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_OK(api().cuMemsetD8Async(memory_, 0x11, 4, stream_));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, api().cuStreamQuery(stream_));
  ASSERT_OK(api().cuStreamWriteValue64_v2(other, memory_ + 64, 9, 0));
  ASSERT_OK(api().cuStreamSynchronize(stream_));
  EXPECT_EQ(0x11111111U, read_words(memory_, 1)[0]);
  EXPECT_OK(api().cuStreamDestroy_v2(other));
}

TEST_F(ValueTest, EachWaitConditionComparesAsDefined) {
  const auto passes = [&](std::uint32_t value, unsigned flags) {
    EXPECT_OK(api().cuStreamWaitValue32_v2(stream_, there_, value, flags));
    EXPECT_OK(api().cuStreamSynchronize(stream_));
  };
  write(0, 0x80000001U);
  passes(0x7fffffffU, CU_STREAM_WAIT_VALUE_GEQ);  // wraps around the end of the number range
  passes(0x80000001U, CU_STREAM_WAIT_VALUE_EQ);
  passes(0x3, CU_STREAM_WAIT_VALUE_AND);
  ASSERT_OK(api().cuStreamWaitValue32_v2(stream_, there_, 0x80000002U, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, api().cuStreamQuery(stream_));
  write(0, 0x80000002U);
  ASSERT_OK(api().cuStreamSynchronize(stream_));
}

TEST_F(ValueTest, ABatchOfMemoryOperationsRunsInOrder) {
  CUstreamBatchMemOpParams items[3] = {};
  items[0].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, memory_, {5}, 0, 0};
  items[1].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, memory_, {5}, CU_STREAM_WAIT_VALUE_EQ, 0};
  items[2].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, memory_, {6}, 0, 0};
  ASSERT_OK(api().cuStreamBatchMemOp_v2(stream_, 3, items, 0));
  ASSERT_OK(api().cuStreamSynchronize(stream_));
  EXPECT_EQ(6U, read_words(memory_, 1)[0]);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuStreamBatchMemOp_v2(stream_, 257, items, 0));
}

}  // namespace
}  // namespace conformance
