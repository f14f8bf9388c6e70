// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <mutex>

#include "tests/unit/libckpt/inprocess/shim/memory/memory_fixture.h"

namespace ckpt::shim {
namespace {

using MoveTest = ShimMemoryTest;

TEST_F(MoveTest, MemoryIsRemappedAtItsAddresses) {
  const CUdeviceptr large = allocate(5 * kMiB);
  const CUdeviceptr small = allocate(4000);
  const std::size_t before = free_memory();
  fill(large, 5 * kMiB, 1);
  fill(small, 4000, 2);
  auto bank = export_all();
  ASSERT_EQ(2U, bank.size());
  ASSERT_TRUE(shim_memory().release_all().has_value());
  EXPECT_FALSE(shim_memory().whole());
  char byte = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, real().cuMemcpyDtoH_v2(&byte, large, 1));
  CUdeviceptr elsewhere = 0;
  ASSERT_OK(real().cuMemAddressReserve(&elsewhere, 8 * kMiB, 0, large, 0));
  EXPECT_NE(large, elsewhere);
  ASSERT_OK(real().cuMemAddressFree(elsewhere, 8 * kMiB));
  for (const auto& [id, fd] : bank) ASSERT_TRUE(shim_memory().map_region(id, fd.get()).has_value());
  bank.clear();
  EXPECT_TRUE(shim_memory().whole());
  EXPECT_TRUE(holds(large, 5 * kMiB, 1));
  EXPECT_TRUE(holds(small, 4000, 2));
  EXPECT_EQ(before, free_memory());
  EXPECT_OK(hook::cuMemFree_v2(large));
  EXPECT_OK(hook::cuMemFree_v2(small));
}

// Memory that was imported or created in one move is exported in the next move, and a call of free releases
// the memory.
TEST_F(MoveTest, MovedMemoryCanBeMovedAgain) {
  const std::size_t before = free_memory();
  const CUdeviceptr pointers[2] = {allocate(5 * kMiB), allocate(4000)};
  fill(pointers[0], 5 * kMiB, 1);
  fill(pointers[1], 4000, 2);
  for (int move = 0; move < 3; ++move) {
    auto bank = export_all();
    ASSERT_EQ(2U, bank.size());
    ASSERT_TRUE(shim_memory().release_all().has_value());
    for (const auto& [id, fd] : bank) ASSERT_TRUE(shim_memory().map_region(id, fd.get()).has_value());
    EXPECT_TRUE(holds(pointers[0], 5 * kMiB, 1));
    EXPECT_TRUE(holds(pointers[1], 4000, 2));
  }
  for (const CUdeviceptr pointer : pointers) EXPECT_OK(hook::cuMemFree_v2(pointer));
  shim_memory().trim();
  EXPECT_TRUE(shim_memory().regions().empty());
  EXPECT_EQ(before, free_memory());
}

TEST_F(MoveTest, ReleasedMemoryIsFreedCompletely) {
  const std::size_t before = free_memory();
  const CUdeviceptr pointer = allocate(32 * kMiB);
  ASSERT_TRUE(shim_memory().release_all().has_value());
  std::size_t now = 0;
  std::size_t total = 0;
  ASSERT_OK(real().cuMemGetInfo_v2(&now, &total));
  EXPECT_EQ(before, now);
  const std::uint64_t id = shim_memory().regions().at(0).id;
  Result<UniqueFd> fd = shim_memory().make_region(id);
  ASSERT_TRUE(fd.has_value());
  EXPECT_TRUE(shim_memory().whole());
  EXPECT_EQ(ErrorCode::kInvalidArgument, shim_memory().make_region(id).error().code());
  fill(pointer, 32 * kMiB, 3);
  // In production the mover would fill the memory that the program uses.
  CUmemGenericAllocationHandle seen = 0;
  void* const os_handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd->get()));
  ASSERT_OK(
      real().cuMemImportFromShareableHandle(&seen, os_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  CUdeviceptr mirror = 0;
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ASSERT_OK(real().cuMemAddressReserve(&mirror, 32 * kMiB, 0, 0, 0));
  ASSERT_OK(real().cuMemMap(mirror, 32 * kMiB, 0, seen, 0));
  ASSERT_OK(real().cuMemSetAccess(mirror, 32 * kMiB, &access, 1));
  EXPECT_TRUE(holds(mirror, 32 * kMiB, 3));
  EXPECT_OK(real().cuMemUnmap(mirror, 32 * kMiB));
  EXPECT_OK(real().cuMemAddressFree(mirror, 32 * kMiB));
  EXPECT_OK(real().cuMemRelease(seen));
  EXPECT_OK(hook::cuMemFree_v2(pointer));
}

TEST_F(MoveTest, UnknownRegionsAndDescriptorsAreRefused) {
  const CUdeviceptr pointer = allocate(2 * kMiB);
  const std::uint64_t id = shim_memory().regions().at(0).id;
  EXPECT_EQ(ErrorCode::kNotFound, shim_memory().export_region(id + 1).error().code());
  EXPECT_EQ(ErrorCode::kNotFound, shim_memory().map_region(id + 1, 0).error().code());
  auto bank = export_all();
  ASSERT_TRUE(shim_memory().release_all().has_value());
  EXPECT_FALSE(shim_memory().map_region(id, 0).has_value());
  EXPECT_FALSE(shim_memory().whole());
  EXPECT_EQ(ErrorCode::kInvalidArgument, shim_memory().export_region(id).error().code());
  EXPECT_TRUE(shim_memory().map_region(id, bank.at(id).get()).has_value());
  EXPECT_TRUE(shim_memory().map_region(id, -1).has_value());  // the region exists
  EXPECT_OK(hook::cuMemFree_v2(pointer));
}

// The program's own mappings: aliases, handles that outlive the move, unmapped memory, and access from a
// second device.
TEST_F(MoveTest, MappingsOfTheProgramAreReplayed) {
  CUmemAllocationProp property{};
  property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  property.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle mapped = 0;
  CUmemGenericAllocationHandle unmapped = 0;
  ASSERT_OK(hook::cuMemCreate(&mapped, 4 * kMiB, &property, 0));
  ASSERT_OK(hook::cuMemCreate(&unmapped, 2 * kMiB, &property, 0));
  CUmemAllocationProp answered{};
  ASSERT_OK(hook::cuMemGetAllocationPropertiesFromHandle(&answered, mapped));
  EXPECT_EQ(0U, static_cast<unsigned>(answered.requestedHandleTypes));
  int none = -1;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            hook::cuMemExportToShareableHandle(&none, mapped, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CUdeviceptr range = 0;
  ASSERT_OK(real().cuMemAddressReserve(&range, 8 * kMiB, 0, 0, 0));
  ASSERT_OK(hook::cuMemMap(range, 4 * kMiB, 0, mapped, 0));
  ASSERT_OK(hook::cuMemMap(range + 4 * kMiB, 4 * kMiB, 0, mapped, 0));
  const CUmemAccessDesc access[2] = {{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                     {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READ}};
  ASSERT_OK(hook::cuMemSetAccess(range, 8 * kMiB, access, 1));
  ASSERT_OK(hook::cuMemSetAccess(range, 4 * kMiB, access + 1, 1));
  ASSERT_OK(hook::cuMemRelease(mapped));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, hook::cuMemRelease(mapped));
  fill(range, 4 * kMiB, 7);

  auto bank = export_all();
  ASSERT_EQ(2U, bank.size());
  ASSERT_TRUE(shim_memory().release_all().has_value());
  for (const auto& [id, fd] : bank) ASSERT_TRUE(shim_memory().map_region(id, fd.get()).has_value());
  bank.clear();

  EXPECT_TRUE(holds(range, 4 * kMiB, 7));
  EXPECT_TRUE(holds(range + 4 * kMiB, 4 * kMiB, 7));
  unsigned long long flags = 0;
  EXPECT_OK(real().cuMemGetAccess(&flags, &access[1].location, range));
  EXPECT_EQ(static_cast<unsigned long long>(CU_MEM_ACCESS_FLAGS_PROT_READ), flags);
  CUmemGenericAllocationHandle again = 0;
  ASSERT_OK(hook::cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(range)));
  EXPECT_EQ(mapped, again);
  EXPECT_OK(hook::cuMemUnmap(range, 8 * kMiB));
  ASSERT_OK(hook::cuMemMap(range, 2 * kMiB, 0, unmapped, 0));
  ASSERT_OK(hook::cuMemUnmap(range, 2 * kMiB));
  EXPECT_OK(hook::cuMemRelease(again));
  EXPECT_OK(hook::cuMemRelease(unmapped));
  EXPECT_TRUE(shim_memory().regions().empty());
  EXPECT_OK(real().cuMemAddressFree(range, 8 * kMiB));
}

TEST_F(MoveTest, TheProgramCannotChangeTheMappingsOfTheShim) {
  const CUdeviceptr pointer = allocate(4 * kMiB);
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_NONE};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, hook::cuMemUnmap(pointer, 4 * kMiB));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, hook::cuMemSetAccess(pointer, 4 * kMiB, &access, 1));
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            hook::cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(pointer)));
  EXPECT_OK(hook::cuMemFree_v2(pointer));
}

TEST_F(MoveTest, ListenerIsCalledForEachChange) {
  std::vector<std::uint64_t> added;
  std::vector<std::uint64_t> freed;
  RegionListener listener;
  listener.added = [&](const RegionInfo& info) { added.push_back(info.id); };
  listener.freed = [&](const RegionInfo& info) {
    freed.push_back(info.id);
    EXPECT_FALSE(
        shim_memory().export_region(info.id).has_value());  // no lock is held, and the region is no longer
                                                            // listed
  };
  shim_memory().on_change(std::move(listener));
  const CUdeviceptr pointer = allocate(2 * kMiB);
  ASSERT_EQ(1U, added.size());
  EXPECT_OK(hook::cuMemFree_v2(pointer));
  EXPECT_EQ(added, freed);
}

TEST_F(MoveTest, AllocationWaitsForMemoryHeldByAMover) {
  const std::size_t all = free_memory() / (2 * kMiB) * (2 * kMiB);
  const CUdeviceptr pointer = allocate(all);
  auto mover = export_all();  // this object retains the memory, as a mover does until it receives the free
  int waits = 0;
  RegionListener listener;
  listener.wait_for_frees = [&] {
    ++waits;
    if (mover.empty()) return false;
    mover.clear();
    return true;
  };
  shim_memory().on_change(std::move(listener));
  EXPECT_OK(hook::cuMemFree_v2(pointer));
  const CUdeviceptr again = allocate(all);
  EXPECT_EQ(1, waits);
  CUdeviceptr more = 0;
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, hook::cuMemAlloc_v2(&more, 4 * kMiB));
  EXPECT_OK(hook::cuMemFree_v2(again));
}

}  // namespace
}  // namespace ckpt::shim
