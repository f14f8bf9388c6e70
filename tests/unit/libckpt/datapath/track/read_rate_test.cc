// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/track/read_rate.h"

#include "libckpt/datapath/track/read_host.h"
#include "tests/unit/libckpt/datapath/track/device_test.h"

namespace ckpt::track {
namespace {

std::uint32_t fold_by_definition(std::span<const std::byte> data) {
  std::uint32_t folded = 0;
  for (std::size_t i = 0; i < data.size(); ++i)
    folded ^= std::to_integer<std::uint32_t>(data[i]) << (8 * (i % 4));
  return folded;
}

TEST(ReadHost, HostReadFoldsEveryByteOnce) {
  const std::vector<std::byte> data = random_bytes(40'000);
  const void* unreadable = reinterpret_cast<const void*>(std::uintptr_t{64});
  for (std::size_t length = 0; length < 39'000; length += 1 + length / 5) {
    const auto part = std::span(data).subspan(length % 61, length);
    EXPECT_EQ(read_host(part.data(), length), fold_by_definition(part)) << length;
    EXPECT_EQ(read_host(part.data(), length, unreadable), fold_by_definition(part)) << length;
  }
}

class ReadRateTest : public DeviceTest {};

TEST_F(ReadRateTest, KernelFoldsEveryByteOnce) {
  std::vector<ChunkRange> chunks;
  std::vector<std::uint64_t> expected;
  for (const std::size_t length :
       {1UL, 15UL, 16UL, 4096UL, 32'768UL, 32'784UL, 65'536UL, 100'003UL, 3'000'001UL}) {
    const std::vector<std::byte> data = random_bytes(length);
    chunks.push_back({upload(data), length});
    expected.push_back(fold_by_definition(data));
  }
  auto list = *DeviceList::create(*device_, 4096);
  std::copy(chunks.begin(), chunks.end(), reinterpret_cast<ChunkRange*>(list.host()));
  ASSERT_TRUE(list.upload(nullptr, 0, 2048).has_value());
  ASSERT_TRUE(kernels_
                  ->launch_read(nullptr, list.device_address(), list.device_address() + 2048,
                                static_cast<std::uint32_t>(chunks.size()))
                  .has_value());
  ASSERT_TRUE(list.download(nullptr, 2048, 2048).has_value());
  ASSERT_TRUE(list.mark(nullptr).has_value());
  ASSERT_TRUE(list.wait().has_value());
  const auto* results = reinterpret_cast<const std::uint64_t*>(list.host() + 2048);
  EXPECT_EQ(std::vector<std::uint64_t>(results, results + chunks.size()), expected);
}

TEST_F(ReadRateTest, ReadStopsAtTheBudget) {
  constexpr std::uint64_t kBytes = 3 << 20;
  const CUdeviceptr address = allocate(kBytes);
  // A read of the second range would be an illegal access.
  const std::vector<ChunkRange> ranges = {{address, kBytes}, {16, kBytes}};
  for (const std::uint64_t budget : {std::uint64_t{1000}, std::uint64_t{1} << 20, kBytes}) {
    const auto rate = measure_read_rate(*kernels_, ranges, budget);
    ASSERT_TRUE(rate.has_value()) << rate.error().to_string();
    EXPECT_GT(*rate, 0u);
  }
  ASSERT_EQ(device_->api().cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(ReadRateTest, UnreadableRangesAreRefused) {
  const CUdeviceptr address = allocate(1 << 20);
  const std::vector<ChunkRange> crooked = {{address + 8, 4096}};
  const std::vector<ChunkRange> good = {{address, 4096}};
  for (const auto& result : {measure_read_rate(*kernels_, crooked, 4096),
                             measure_read_rate(*kernels_, {}, 4096), measure_read_rate(*kernels_, good, 0)}) {
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace ckpt::track
