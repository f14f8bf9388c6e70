// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/region_filler.h"

#include <gtest/gtest.h>

#include <list>
#include <optional>
#include <thread>

#include "libckpt/inprocess/memory/device_memory.h"

namespace ckpt::mover {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

class RegionFillerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = Device::open(0);
    ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
    device_.emplace(*std::move(opened));
    scope_.emplace(*device_);
  }
  void TearDown() override {
    memory_.clear();
    scope_.reset();
    device_.reset();
  }

  // Creates memory with `value` in every byte.
  DeviceMemory& make(std::uint64_t bytes, unsigned char value) {
    auto made = DeviceMemory::create(device_->api(), device_->device(), bytes);
    EXPECT_TRUE(made.has_value()) << made.error().to_string();
    memory_.push_back(*std::move(made));
    EXPECT_EQ(device_->api().cuMemsetD8_v2(memory_.back().pointer(), value, bytes), CUDA_SUCCESS);
    EXPECT_EQ(device_->api().cuCtxSynchronize(), CUDA_SUCCESS);
    return memory_.back();
  }
  void add(std::uint64_t id, std::uint64_t bytes, DeviceMemory& from, DeviceMemory& to) {
    regions_.emplace_back(id, 1, bytes);
    for (DeviceMemory* memory : {&from, &to}) descriptors_.push_back(*memory->export_fd());
  }
  Result<std::uint64_t> fill(RegionFiller::CopiedHook hook = {}) {
    auto filler = RegionFiller::create(*device_, std::move(hook));
    EXPECT_TRUE(filler.has_value()) << filler.error().to_string();
    return (*filler)->fill(regions_, std::move(descriptors_));
  }
  std::vector<unsigned> words(const DeviceMemory& memory) {
    std::vector<unsigned> out(memory.bytes() / 4);
    EXPECT_EQ(device_->api().cuMemcpyDtoH_v2(out.data(), memory.pointer(), memory.bytes()), CUDA_SUCCESS);
    return out;
  }

  std::optional<Device> device_;
  std::optional<ContextScope> scope_;
  std::list<DeviceMemory> memory_;
  std::vector<wire::mover::RegionInfo> regions_;
  std::vector<UniqueFd> descriptors_;
};

TEST_F(RegionFillerTest, EachRegionEqualsItsSource) {
  DeviceMemory& large = make(6 * kMiB, 7);
  DeviceMemory& small = make(2 * kMiB, 9);
  DeviceMemory& own_large = make(6 * kMiB, 0);
  DeviceMemory& own_small = make(2 * kMiB, 0);
  add(1, 6 * kMiB, large, own_large);
  add(2, 2 * kMiB, small, own_small);
  const auto bytes = fill();
  ASSERT_TRUE(bytes.has_value()) << bytes.error().to_string();
  EXPECT_EQ(*bytes, 8 * kMiB);
  EXPECT_EQ(words(own_large), words(large));
  EXPECT_EQ(words(own_small), words(small));
}

// The order is as in a mover: the filler is ready before a session that loads and unloads its own kernels.
TEST_F(RegionFillerTest, MemoryIsFilledAfterOtherKernelsWereLoadedAndUnloaded) {
  auto filler = *RegionFiller::create(*device_);
  DeviceMemory& from = make(6 * kMiB, 7);
  DeviceMemory& own = make(6 * kMiB, 0);
  for (int session = 0; session < 3; ++session) {
    const auto work = [this, &from] {
      const ContextScope scope(*device_);
      track::FingerprintKey key{};
      key[0] = std::byte{1};
      auto kernels = *track::TrackKernels::create(
          *device_, track::FingerprintParams::expand(key, track::FingerprintPurpose::kChunks));
      auto scanner = *track::Scanner::create(kernels, track::ScannerOptions{});
      std::vector<track::ChunkRange> ranges;
      track::append_chunks(from.pointer(), from.bytes(), kMiB, ranges);
      std::vector<track::Fingerprint> found(ranges.size());
      EXPECT_TRUE(scanner->scan(ranges, found));
    };
    std::thread(work).join();
    add(1, 6 * kMiB, from, own);
    const auto bytes = filler->fill(regions_, std::move(descriptors_));
    ASSERT_TRUE(bytes.has_value()) << bytes.error().to_string();
    EXPECT_EQ(words(own), words(from));
    regions_.clear();
    descriptors_.clear();
  }
}

TEST_F(RegionFillerTest, WrongCopyIsDetected) {
  DeviceMemory& from = make(4 * kMiB, 7);
  DeviceMemory& to = make(4 * kMiB, 0);
  add(5, 4 * kMiB, from, to);
  const auto bytes = fill([this](CUdeviceptr target, std::uint64_t copied) {
    EXPECT_EQ(copied, 4 * kMiB);
    EXPECT_EQ(device_->api().cuMemsetD8_v2(target + 3 * kMiB + 5, 0xee, 1), CUDA_SUCCESS);
    EXPECT_EQ(device_->api().cuCtxSynchronize(), CUDA_SUCCESS);
  });
  ASSERT_FALSE(bytes.has_value());
  EXPECT_EQ(bytes.error().code(), ErrorCode::kCorrupt);
  EXPECT_NE(bytes.error().to_string().find("Region 5"), std::string::npos);
}

TEST_F(RegionFillerTest, DescriptorsThatDoNotMatchTheRegionsAreRefused) {
  DeviceMemory& from = make(4 * kMiB, 7);
  DeviceMemory& to = make(4 * kMiB, 0);
  add(5, 4 * kMiB, from, to);
  descriptors_.pop_back();
  EXPECT_FALSE(fill().has_value());
  regions_.clear();
  descriptors_.clear();
  add(5, 8 * kMiB, from, to);  // larger than the exported memory
  EXPECT_FALSE(fill().has_value());
}

}  // namespace
}  // namespace ckpt::mover
