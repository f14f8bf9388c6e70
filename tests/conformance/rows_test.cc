// SPDX-License-Identifier: Apache-2.0
// Tests of memory in rows, and of memory of another process through legacy IPC.
#include <cstring>

#include "tests/conformance/support/support.h"

namespace conformance {
namespace {

class RowsTest : public DriverTest {};

TEST_F(RowsTest, APitchCoversTheRowWidthAndCopiesUseThePitch) {
  CUdeviceptr memory = 0;
  std::size_t pitch = 0;
  ASSERT_OK(api().cuMemAllocPitch_v2(&memory, &pitch, 100, 7, 4));
  EXPECT_GE(pitch, 100U);
  EXPECT_EQ(0U, pitch % 16);
  ASSERT_OK(api().cuMemsetD2D8_v2(memory, pitch, 0x11, 100, 7));
  std::vector<std::uint8_t> host(100 * 7);
  for (std::size_t i = 0; i < host.size(); i++) host[i] = static_cast<std::uint8_t>(i);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host.data();
  copy.srcPitch = 100;
  copy.srcXInBytes = 10;
  copy.srcY = 1;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = memory;
  copy.dstPitch = pitch;
  copy.dstXInBytes = 20;
  copy.dstY = 2;
  copy.WidthInBytes = 50;
  copy.Height = 4;
  ASSERT_OK(api().cuMemcpy2D_v2(&copy));
  std::vector<std::uint8_t> back(100 * 7);
  CUDA_MEMCPY2D out{};
  out.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  out.srcDevice = memory;
  out.srcPitch = pitch;
  out.dstMemoryType = CU_MEMORYTYPE_HOST;
  out.dstHost = back.data();
  out.dstPitch = 100;
  out.WidthInBytes = 100;
  out.Height = 7;
  ASSERT_OK(api().cuMemcpy2DAsync_v2(&out, nullptr));
  ASSERT_OK(api().cuCtxSynchronize());
  for (std::size_t row = 0; row < 7; row++) {
    for (std::size_t x = 0; x < 100; x++) {
      const bool inside = row >= 2 && row < 6 && x >= 20 && x < 70;
      const std::uint8_t expected = inside ? host[(row - 1) * 100 + x - 10] : 0x11;
      ASSERT_EQ(expected, back[row * 100 + x]) << row << " " << x;
    }
  }
  copy.dstPitch = 40;  // shorter than a row
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuMemcpy2D_v2(&copy));
  EXPECT_OK(api().cuMemFree_v2(memory));
}

TEST_F(RowsTest, RowsAreSetWithElementsOfEveryWidth) {
  CUdeviceptr memory = 0;
  ASSERT_OK(api().cuMemAlloc_v2(&memory, 4096));
  ASSERT_OK(api().cuMemsetD8_v2(memory, 0, 4096));
  ASSERT_OK(api().cuMemsetD2D32_v2(memory, 64, 0x01020304, 3, 2));
  ASSERT_OK(api().cuMemsetD2D16Async(memory + 128, 32, 0x0506, 2, 2, nullptr));
  ASSERT_OK(api().cuMemsetD16Async(memory + 1024, 0x0708, 3, nullptr));
  ASSERT_OK(api().cuCtxSynchronize());
  const std::vector<std::uint32_t> words = read_words(memory, 1024);
  EXPECT_EQ(0x01020304U, words[2]);
  EXPECT_EQ(0U, words[3]);
  EXPECT_EQ(0x01020304U, words[16 + 2]);
  EXPECT_EQ(0x05060506U, words[32]);
  EXPECT_EQ(0U, words[33]);
  EXPECT_EQ(0x05060506U, words[40]);
  EXPECT_EQ(0x07080708U, words[256]);
  EXPECT_EQ(0x0708U, words[257]);
  EXPECT_OK(api().cuMemFree_v2(memory));
}

TEST_F(RowsTest, AnotherProcessOpensMemoryByIpcHandle) {
  CUdeviceptr memory = 0;
  ASSERT_OK(api().cuMemAlloc_v2(&memory, 4 * kMiB));
  ASSERT_OK(api().cuMemsetD8_v2(memory, 0x31, 4 * kMiB));
  ASSERT_OK(api().cuCtxSynchronize());
  CUipcMemHandle handle{};
  const CUresult made = api().cuIpcGetMemHandle(&handle, memory);
  if (made == CUDA_ERROR_NOT_SUPPORTED) GTEST_SKIP() << "no legacy IPC here";
  ASSERT_OK(made);
  Child child("open_handle");
  child.send_text(std::string(handle.reserved, sizeof handle.reserved));
  EXPECT_EQ("changed", child.receive_text());
  EXPECT_EQ(0x32, read_bytes(memory + 4 * kMiB - 1, 1)[0]);
  child.send_text("end");
  EXPECT_EQ(0, child.wait());
  Mapped mapped(2 * kMiB);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuIpcGetMemHandle(&handle, mapped.address));
  EXPECT_OK(api().cuMemFree_v2(memory));
}

}  // namespace
}  // namespace conformance
