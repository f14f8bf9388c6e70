// SPDX-License-Identifier: Apache-2.0
// Tests of the virtual memory management API: rules, error codes, sharing between processes, and accounting.
#include <fcntl.h>
#include <unistd.h>

#include "tests/conformance/support/support.h"

namespace conformance {
namespace {

class VmmTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const CUmemAllocationProp properties = device_memory(0, false);
    ASSERT_OK(api().cuMemGetAllocationGranularity(&unit_, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  }
  std::size_t unit_ = 0;
};

int export_fd(CUmemGenericAllocationHandle handle) {
  int fd = -1;
  EXPECT_OK(api().cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return fd;
}

CUresult import_fd(int fd, CUmemGenericAllocationHandle* handle) {
  return api().cuMemImportFromShareableHandle(handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

TEST_F(VmmTest, GranularityIsTwoMebibytes) {
  EXPECT_EQ(2 * kMiB, unit_);
}

TEST_F(VmmTest, CreateRefusesSizesThatAreNotMultiplesOfTheGranularity) {
  const CUmemAllocationProp properties = device_memory(0, false);
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuMemCreate(&handle, unit_ + 4096, &properties, 0));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuMemCreate(&handle, 0, &properties, 0));
}

TEST_F(VmmTest, MappedMemoryKeepsItsContent) {
  Mapped memory(2 * unit_);
  ASSERT_OK(api().cuMemsetD32_v2(memory.address, 0x01020304, 2 * unit_ / 4));
  EXPECT_EQ(std::vector<std::uint32_t>(16, 0x01020304), read_words(memory.address + unit_ - 32, 16));
}

TEST_F(VmmTest, MapAcceptsWholeAllocationsInFreeReservedSpace) {
  Mapped memory(2 * unit_);
  CUdeviceptr range = 0;
  ASSERT_OK(api().cuMemAddressReserve(&range, 4 * unit_, 0, 0, 0));
  EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, api().cuMemMap(range, unit_, unit_, memory.handle, 0));
  ASSERT_OK(api().cuMemMap(range, 2 * unit_, 0, memory.handle, 0));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuMemMap(range + unit_, 2 * unit_, 0, memory.handle, 0));
  EXPECT_OK(api().cuMemUnmap(range, 2 * unit_));
  EXPECT_OK(api().cuMemAddressFree(range, 4 * unit_));
}

TEST_F(VmmTest, UnmapAcceptsOnlyWholeMappings) {
  CUdeviceptr range = 0;
  ASSERT_OK(api().cuMemAddressReserve(&range, 4 * unit_, 0, 0, 0));
  const CUmemAllocationProp properties = device_memory(0, false);
  CUmemGenericAllocationHandle handles[2] = {};
  for (int i = 0; i < 2; i++) {
    ASSERT_OK(api().cuMemCreate(&handles[i], 2 * unit_, &properties, 0));
    ASSERT_OK(api().cuMemMap(range + 2 * unit_ * static_cast<unsigned>(i), 2 * unit_, 0, handles[i], 0));
    ASSERT_OK(api().cuMemRelease(handles[i]));
  }
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuMemUnmap(range, unit_));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuMemUnmap(range + unit_, 2 * unit_));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuMemAddressFree(range, 4 * unit_));
  EXPECT_OK(api().cuMemUnmap(range, 4 * unit_));
  EXPECT_OK(api().cuMemUnmap(range, 4 * unit_));  // no mapping is left to unmap
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuMemAddressFree(range, 2 * unit_));
  EXPECT_OK(api().cuMemAddressFree(range, 4 * unit_));
}

TEST_F(VmmTest, AccessIsRefusedBeforeSetAccess) {
  const CUmemAllocationProp properties = device_memory(0, false);
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr range = 0;
  ASSERT_OK(api().cuMemCreate(&handle, unit_, &properties, 0));
  ASSERT_OK(api().cuMemAddressReserve(&range, unit_, 0, 0, 0));
  std::uint32_t word = 0;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuMemcpyDtoH_v2(&word, range, sizeof word));
  ASSERT_OK(api().cuMemMap(range, unit_, 0, handle, 0));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuMemcpyDtoH_v2(&word, range, sizeof word));
  const CUmemAccessDesc access = access_of(0);
  ASSERT_OK(api().cuMemSetAccess(range, unit_, &access, 1));
  EXPECT_OK(api().cuMemcpyDtoH_v2(&word, range, sizeof word));
  unsigned long long flags = 0;
  ASSERT_OK(api().cuMemGetAccess(&flags, &access.location, range));
  EXPECT_EQ(static_cast<unsigned long long>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE), flags);
  EXPECT_OK(api().cuMemUnmap(range, unit_));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuMemcpyDtoH_v2(&word, range, sizeof word));
  EXPECT_OK(api().cuMemAddressFree(range, unit_));
  EXPECT_OK(api().cuMemRelease(handle));
}

TEST_F(VmmTest, ReleasedMemoryExistsAsLongAsItsMapping) {
  const std::size_t before = free_memory();
  const CUmemAllocationProp properties = device_memory(0, false);
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr range = 0;
  ASSERT_OK(api().cuMemCreate(&handle, 32 * kMiB, &properties, 0));
  ASSERT_OK(api().cuMemAddressReserve(&range, 32 * kMiB, 0, 0, 0));
  ASSERT_OK(api().cuMemMap(range, 32 * kMiB, 0, handle, 0));
  const CUmemAccessDesc access = access_of(0);
  ASSERT_OK(api().cuMemSetAccess(range, 32 * kMiB, &access, 1));
  ASSERT_OK(api().cuMemRelease(handle));
  ASSERT_OK(api().cuMemsetD8_v2(range, 0x5a, unit_));
  EXPECT_EQ(std::vector<std::uint8_t>(8, 0x5a), read_bytes(range, 8));
  CUmemGenericAllocationHandle again = 0;
  ASSERT_OK(api().cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(range)));
  EXPECT_OK(api().cuMemUnmap(range, 32 * kMiB));
  EXPECT_LE(free_memory() + 32 * kMiB, before);
  EXPECT_OK(api().cuMemRelease(again));
  EXPECT_TRUE(comes_back(before));
  EXPECT_OK(api().cuMemAddressFree(range, 32 * kMiB));
}

TEST_F(VmmTest, TwoMappingsOfAnAllocationShareTheirBytes) {
  Mapped memory(unit_);
  CUdeviceptr alias = 0;
  ASSERT_OK(api().cuMemAddressReserve(&alias, unit_, 0, 0, 0));
  ASSERT_OK(api().cuMemMap(alias, unit_, 0, memory.handle, 0));
  const CUmemAccessDesc access = access_of(0);
  ASSERT_OK(api().cuMemSetAccess(alias, unit_, &access, 1));
  ASSERT_OK(api().cuMemsetD8_v2(memory.address, 0x42, unit_));
  EXPECT_EQ(std::vector<std::uint8_t>(4, 0x42), read_bytes(alias + 100, 4));
  EXPECT_OK(api().cuMemUnmap(alias, unit_));
  EXPECT_OK(api().cuMemAddressFree(alias, unit_));
}

TEST_F(VmmTest, ReserveReturnsTheRequestedAddressIfTheAddressIsFree) {
  CUdeviceptr first = 0;
  ASSERT_OK(api().cuMemAddressReserve(&first, 16 * unit_, 0, 0, 0));
  ASSERT_OK(api().cuMemAddressFree(first, 16 * unit_));
  CUdeviceptr second = 0;
  ASSERT_OK(api().cuMemAddressReserve(&second, 16 * unit_, 0, first, 0));
  EXPECT_EQ(first, second);
  CUdeviceptr third = 0;
  ASSERT_OK(api().cuMemAddressReserve(&third, unit_, 0, first, 0));
  EXPECT_NE(first, third);
  EXPECT_OK(api().cuMemAddressFree(second, 16 * unit_));
  EXPECT_OK(api().cuMemAddressFree(third, unit_));
}

TEST_F(VmmTest, ACopyMaySpanAdjacentMappings) {
  CUdeviceptr range = 0;
  ASSERT_OK(api().cuMemAddressReserve(&range, 2 * unit_, 0, 0, 0));
  const CUmemAllocationProp properties = device_memory(0, false);
  for (unsigned i = 0; i < 2; i++) {
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_OK(api().cuMemCreate(&handle, unit_, &properties, 0));
    ASSERT_OK(api().cuMemMap(range + i * unit_, unit_, 0, handle, 0));
    ASSERT_OK(api().cuMemRelease(handle));
  }
  const CUmemAccessDesc access = access_of(0);
  ASSERT_OK(api().cuMemSetAccess(range, 2 * unit_, &access, 1));
  ASSERT_OK(api().cuMemsetD8_v2(range, 7, 2 * unit_));
  EXPECT_EQ(std::vector<std::uint8_t>(64, 7), read_bytes(range + unit_ - 32, 64));
  EXPECT_OK(api().cuMemUnmap(range, 2 * unit_));
  EXPECT_OK(api().cuMemAddressFree(range, 2 * unit_));
}

TEST_F(VmmTest, HandlesBecomeInvalidAtTheirLastRelease) {
  const CUmemAllocationProp properties = device_memory(0, true);
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_OK(api().cuMemCreate(&handle, unit_, &properties, 0));
  CUmemAllocationProp answered{};
  ASSERT_OK(api().cuMemGetAllocationPropertiesFromHandle(&answered, handle));
  EXPECT_EQ(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, answered.requestedHandleTypes);
  EXPECT_EQ(0, answered.location.id);
  EXPECT_OK(api().cuMemRelease(handle));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuMemRelease(handle));
}

TEST_F(VmmTest, OnlyMemoryCreatedForExportIsExported) {
  Mapped plain(unit_);
  int fd = -1;
  EXPECT_NE(CUDA_SUCCESS, api().cuMemExportToShareableHandle(&fd, plain.handle,
                                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CUdeviceptr memory = 0;
  ASSERT_OK(api().cuMemAlloc_v2(&memory, unit_));
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              api().cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(memory)));
  EXPECT_OK(api().cuMemFree_v2(memory));
}

TEST_F(VmmTest, ImportingAForeignDescriptorIsRefused) {
  const int fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_NE(CUDA_SUCCESS, import_fd(fd, &handle));
  ::close(fd);
}

TEST_F(VmmTest, AnotherProcessReadsAndWritesExportedMemory) {
  Mapped memory(4 * kMiB, true);
  ASSERT_OK(api().cuMemsetD8_v2(memory.address, 0x11, memory.bytes));
  ASSERT_OK(api().cuCtxSynchronize());
  const int fd = export_fd(memory.handle);
  Child child("import");
  const std::size_t before = free_memory();
  child.send_text("take", fd);
  ::close(fd);
  ASSERT_EQ("imported", child.receive_text());
  EXPECT_EQ(std::vector<std::uint8_t>(64, 0x22), read_bytes(memory.address + memory.bytes - 64, 64));
  // The memory is held by two processes and counted once. The margin allows for the overhead of a real
  // context.
  EXPECT_GE(free_memory() + 1024 * kMiB, before);
  child.send_text("bye");
  EXPECT_EQ(0, child.wait());
}

TEST_F(VmmTest, AnExportedDescriptorKeepsTheMemoryOfAKilledProcess) {
  const std::size_t before = free_memory();
  Child child("export");
  int fd = -1;
  ASSERT_EQ("exported", child.receive_text(&fd));
  ASSERT_GE(fd, 0);
  child.kill();
  EXPECT_EQ(-SIGKILL, child.wait());
  ASSERT_TRUE(comes_back(before - 4 * kMiB));
  EXPECT_LE(free_memory(), before - 4 * kMiB);
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_OK(import_fd(fd, &handle));
  ::close(fd);
  {
    Mapped memory(handle, 4 * kMiB);
    EXPECT_EQ(std::vector<std::uint8_t>(64, 0x33), read_bytes(memory.address + memory.bytes - 64, 64));
  }
  EXPECT_TRUE(comes_back(before));
}

TEST_F(VmmTest, MemoryOfAKilledProcessIsFreed) {
  const std::size_t before = free_memory();
  Child child("hold");
  ASSERT_EQ("holding", child.receive_text());
  EXPECT_LE(free_memory(), before - 64 * kMiB);
  child.kill();
  child.wait();
  EXPECT_TRUE(comes_back(before));
}

TEST_F(VmmTest, AnAllocationAboveTheDeviceMemoryIsRefusedWithoutALeak) {
  const std::size_t before = free_memory();
  std::size_t total = 0;
  ASSERT_OK(api().cuDeviceTotalMem_v2(&total, 0));
  const CUmemAllocationProp properties = device_memory(0, false);
  CUmemGenericAllocationHandle handle = 0;
  const std::size_t too_much = (total / unit_ + 1) * unit_;
  EXPECT_CUDA(CUDA_ERROR_OUT_OF_MEMORY, api().cuMemCreate(&handle, too_much, &properties, 0));
  CUdeviceptr memory = 0;
  EXPECT_CUDA(CUDA_ERROR_OUT_OF_MEMORY, api().cuMemAlloc_v2(&memory, too_much));
  EXPECT_TRUE(comes_back(before));
}

TEST_F(VmmTest, AccessIsGrantedPerDevice) {
  if (!two_devices()) GTEST_SKIP() << "one device";
  int can = 0;
  ASSERT_OK(api().cuDeviceCanAccessPeer(&can, 1, 0));
  if (can == 0) GTEST_SKIP() << "no peer access";
  Mapped memory(unit_);
  ASSERT_OK(api().cuMemsetD8_v2(memory.address, 0x77, unit_));
  const CUmemAccessDesc access = access_of(1);
  ASSERT_OK(api().cuMemSetAccess(memory.address, unit_, &access, 1));
  CUcontext second = nullptr;
  ASSERT_OK(api().cuDevicePrimaryCtxRetain(&second, 1));
  ASSERT_OK(api().cuCtxPushCurrent_v2(second));
  const CUmodule module = load_kernels();
  EXPECT_OK(
      launch(kernel(module, "add_one"), 1, 32, nullptr, std::uint64_t{memory.address}, std::uint64_t{1}));
  EXPECT_OK(api().cuCtxSynchronize());
  EXPECT_OK(api().cuModuleUnload(module));
  ASSERT_OK(api().cuCtxPopCurrent_v2(nullptr));
  EXPECT_EQ(0x77777778U, read_words(memory.address, 1)[0]);
  EXPECT_OK(api().cuDevicePrimaryCtxRelease_v2(1));
}

}  // namespace
}  // namespace conformance
