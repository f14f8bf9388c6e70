// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/memory/device_memory.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <vector>

namespace ckpt {
namespace {

constexpr std::size_t kMiB = 1 << 20;

const Device& gpu() {
  static const Device device = [] {
    Result<Device> opened = Device::open(0);
    if (!opened.has_value()) {
      std::fprintf(stderr, "%s\n", opened.error().to_string().c_str());
      std::abort();
    }
    return *std::move(opened);
  }();
  return device;
}

class DeviceMemoryTest : public ::testing::Test {
 protected:
  DeviceMemoryTest() : scope_(gpu()), api_(gpu().api()), device_(gpu().device()) {}

  std::size_t free_bytes() const {
    std::size_t free = 0;
    std::size_t total = 0;
    EXPECT_EQ(api_.cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
    return free;
  }
  DeviceMemory create(std::size_t bytes) const {
    Result<DeviceMemory> memory = DeviceMemory::create(api_, device_, bytes);
    EXPECT_TRUE(memory.has_value()) << memory.error().to_string();
    return *std::move(memory);
  }

  ContextScope scope_;
  const DriverApi& api_;
  CUdevice device_;
};

TEST_F(DeviceMemoryTest, SizeIsRoundedUp) {
  const std::size_t unit = *round_to_granularity(api_, device_, 1);
  EXPECT_EQ(create(unit + 1).bytes(), 2 * unit);
  EXPECT_FALSE(DeviceMemory::create(api_, device_, 0).has_value());
  EXPECT_FALSE(DeviceMemory::create(api_, device_, ~std::size_t{0}).has_value());
}

TEST_F(DeviceMemoryTest, ImportedMemoryHasTheSameBytes) {
  const DeviceMemory memory = create(4 * kMiB);
  Result<UniqueFd> fd = memory.export_fd();
  ASSERT_TRUE(fd.has_value()) << fd.error().to_string();
  Result<ImportedMemory> imported = ImportedMemory::import(api_, device_, fd->get(), memory.bytes());
  ASSERT_TRUE(imported.has_value()) << imported.error().to_string();
  fd->reset();
  EXPECT_NE(imported->pointer(), memory.pointer());
  ASSERT_EQ(api_.cuMemsetD8_v2(memory.pointer(), 0x3c, memory.bytes()), CUDA_SUCCESS);
  std::vector<unsigned char> read(memory.bytes());
  ASSERT_EQ(api_.cuMemcpyDtoH_v2(read.data(), imported->pointer(), read.size()), CUDA_SUCCESS);
  EXPECT_EQ(read, std::vector<unsigned char>(read.size(), 0x3c));
  ASSERT_EQ(api_.cuMemsetD8_v2(imported->pointer(), 0x7e, 1), CUDA_SUCCESS);
  ASSERT_EQ(api_.cuMemcpyDtoH_v2(read.data(), memory.pointer(), 1), CUDA_SUCCESS);
  EXPECT_EQ(read[0], 0x7e);
}

TEST_F(DeviceMemoryTest, MemoryIsFreedByItsLastHolder) {
  const std::size_t before = free_bytes();
  std::optional<DeviceMemory> memory = create(16 * kMiB);
  EXPECT_LE(free_bytes() + 16 * kMiB, before);
  Result<UniqueFd> fd = memory->export_fd();
  ASSERT_TRUE(fd.has_value());
  std::optional<ImportedMemory> imported =
      std::move(*ImportedMemory::import(api_, device_, fd->get(), memory->bytes()));
  fd->reset();
  memory.reset();
  EXPECT_LE(free_bytes() + 16 * kMiB, before) << "the import holds it";
  imported.reset();
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(DeviceMemoryTest, FailedImportsLeakNoMemory) {
  const std::size_t before = free_bytes();
  EXPECT_FALSE(ImportedMemory::import(api_, device_, -1, 2 * kMiB).has_value());
  const UniqueFd file = std::move(*make_memory_file("no memory of a GPU", 4096));
  EXPECT_FALSE(ImportedMemory::import(api_, device_, file.get(), 2 * kMiB).has_value());
  {
    const DeviceMemory memory = create(2 * kMiB);
    const UniqueFd fd = std::move(*memory.export_fd());
    EXPECT_FALSE(ImportedMemory::import(api_, device_, fd.get(), 4 * kMiB).has_value())
        << "more than there is";
  }
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(DeviceMemoryTest, TooLargeAllocationIsOutOfMemoryAndLeaksNoMemory) {
  const std::size_t before = free_bytes();
  const Result<DeviceMemory> memory = DeviceMemory::create(api_, device_, 4096 * kMiB);
  ASSERT_FALSE(memory.has_value());
  EXPECT_EQ(memory.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(DeviceMemoryTest, MovedFromObjectsReleaseNoMemory) {
  const std::size_t before = free_bytes();
  {
    DeviceMemory first = create(2 * kMiB);
    const DeviceMemory second = std::move(first);
    EXPECT_EQ(first.pointer(), 0u);
    EXPECT_EQ(api_.cuMemsetD8_v2(second.pointer(), 1, 16), CUDA_SUCCESS);
  }
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(DeviceMemoryTest, ForeignAllocationIsFoundByAnyInteriorPointer) {
  const DeviceMemory memory = create(4 * kMiB);
  const Result<ForeignAllocation> found = ForeignAllocation::find(api_, memory.pointer() + 3 * kMiB);
  ASSERT_TRUE(found.has_value()) << found.error().to_string();
  EXPECT_EQ(found->base(), memory.pointer());
  EXPECT_EQ(found->bytes(), memory.bytes());
}

TEST_F(DeviceMemoryTest, PlainMemoryCannotBeExported) {
  CUdeviceptr plain = 0;
  ASSERT_EQ(api_.cuMemAlloc_v2(&plain, kMiB), CUDA_SUCCESS);
  const Result<ForeignAllocation> found = ForeignAllocation::find(api_, plain);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code(), ErrorCode::kNotSupported);
  api_.cuMemFree_v2(plain);
}

TEST_F(DeviceMemoryTest, MemoryCreatedWithoutADescriptorTypeCannotBeExported) {
  CUmemAllocationProp property{};
  property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  property.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  property.location.id = device_;
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(api_.cuMemCreate(&handle, 2 * kMiB, &property, 0), CUDA_SUCCESS);
  const MappedMemory mapped = std::move(*MappedMemory::map(api_, device_, handle, 2 * kMiB));
  const Result<ForeignAllocation> found = ForeignAllocation::find(api_, mapped.pointer());
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code(), ErrorCode::kNotSupported);
}

}  // namespace
}  // namespace ckpt
