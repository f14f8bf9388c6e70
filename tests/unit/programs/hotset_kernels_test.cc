// SPDX-License-Identifier: Apache-2.0
// Tests hotset's kernels on a device: the check kernel accepts the written data, and rejects data with a
// single changed bit.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tools/examples/common/gpu.h"

namespace ckpt::examples {
namespace {

constexpr std::uint64_t kPages = 100;
constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kSeed = 5;

class HotsetKernels : public ::testing::Test {
 protected:
  HotsetKernels()
      : kernels_("hotset_kernels"),
        memory_(kPages * kPageBytes),
        versions_(kPages * 4),
        list_(kPages * 4),
        result_(4) {}

  void write(CUdeviceptr list, std::uint64_t first, std::uint64_t count, std::uint32_t version) {
    launch(kernels_["write_pages"], 7, 256, memory_.get(), versions_.get(), list, first, count, kPages, kSeed,
           version);
  }
  std::uint32_t differences(CUdeviceptr list, std::uint64_t first, std::uint64_t count) {
    check(cuMemsetD8(result_.get(), 0, 4), "cuMemsetD8");
    launch(kernels_["check_pages"], 7, 256, memory_.get(), versions_.get(), list, first, count, kPages, kSeed,
           result_.get());
    std::uint32_t found = 0;
    download(&found, result_.get(), sizeof found);
    return found;
  }
  void flip_bit(std::uint64_t byte) {
    unsigned char value = 0;
    download(&value, memory_.get() + byte, 1);
    value ^= 0x10;
    upload(memory_.get() + byte, &value, 1);
  }

  Gpu gpu_;
  Kernels kernels_;
  LocalMemory memory_, versions_, list_, result_;
};

TEST_F(HotsetKernels, FlippedBitIsDetectedInItsPage) {
  write(0, 0, kPages, 0);
  EXPECT_EQ(differences(0, 0, kPages), 0u);
  for (const std::uint64_t byte : {std::uint64_t{0}, 17 * kPageBytes + 4095, kPages * kPageBytes - 1}) {
    flip_bit(byte);
    EXPECT_EQ(differences(0, 0, kPages), 1u);
    EXPECT_EQ(differences(0, byte / kPageBytes, 1), 1u);
    EXPECT_EQ(differences(0, byte / kPageBytes + 1, kPages - 1), 0u);
    flip_bit(byte);
  }
}

TEST_F(HotsetKernels, OnlyTheListedPagesAreWritten) {
  write(0, 0, kPages, 0);
  std::vector<unsigned char> before(kPages * kPageBytes);
  download(before.data(), memory_.get(), before.size());
  const std::vector<std::uint32_t> list = {3, 98, 40};
  upload(list_.get(), list.data(), list.size() * 4);
  write(list_.get(), 0, list.size(), 9);
  EXPECT_EQ(differences(0, 0, kPages), 0u);
  std::vector<unsigned char> after(before.size());
  download(after.data(), memory_.get(), after.size());
  for (std::uint64_t page = 0; page < kPages; page++) {
    const bool listed = std::find(list.begin(), list.end(), page) != list.end();
    const bool same = std::equal(after.begin() + page * kPageBytes, after.begin() + (page + 1) * kPageBytes,
                                 before.begin() + page * kPageBytes);
    EXPECT_EQ(same, !listed) << page;
  }
}

TEST_F(HotsetKernels, ARangeWrapsAroundToTheBeginning) {
  write(0, 0, kPages, 0);
  write(0, kPages - 2, 4, 1);
  std::vector<std::uint32_t> versions(kPages);
  download(versions.data(), versions_.get(), versions.size() * 4);
  EXPECT_EQ(std::accumulate(versions.begin(), versions.end(), 0u), 4u);
  EXPECT_EQ(versions[0] + versions[1] + versions[98] + versions[99], 4u);
}

TEST_F(HotsetKernels, AnOldVersionIsDetectedAsADifference) {
  write(0, 0, kPages, 1);
  std::vector<unsigned char> old(kPageBytes);
  download(old.data(), memory_.get() + 8 * kPageBytes, kPageBytes);
  write(0, 8, 1, 2);
  EXPECT_EQ(differences(0, 0, kPages), 0u);
  upload(memory_.get() + 8 * kPageBytes, old.data(), kPageBytes);
  EXPECT_GT(differences(0, 0, kPages), 0u);
}

}  // namespace
}  // namespace ckpt::examples
