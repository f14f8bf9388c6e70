// SPDX-License-Identifier: Apache-2.0
// Tests of plain device memory, copies, pinned host memory, contexts, and memory that the host must not
// access.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <thread>

#include "tests/conformance/support/support.h"

namespace conformance {
namespace {

using MemoryTest = DriverTest;

TEST_F(MemoryTest, CopiesPreserveAllBytes) {
  std::vector<std::uint8_t> source(5 * kMiB + 3);
  for (std::size_t i = 0; i < source.size(); i++) source[i] = static_cast<std::uint8_t>(i * 31 + i / 4096);
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  ASSERT_OK(api().cuMemAlloc_v2(&first, source.size()));
  ASSERT_OK(api().cuMemAlloc_v2(&second, source.size()));
  ASSERT_OK(api().cuMemcpyHtoD_v2(first, source.data(), source.size()));
  ASSERT_OK(api().cuMemcpyDtoD_v2(second, first, source.size()));
  EXPECT_EQ(source, read_bytes(second, source.size()));
  EXPECT_OK(api().cuMemFree_v2(first));
  EXPECT_OK(api().cuMemFree_v2(second));
}

TEST_F(MemoryTest, SmallAllocationsAreAlignedAndDoNotOverlap) {
  std::vector<CUdeviceptr> blocks(300);
  for (std::size_t i = 0; i < blocks.size(); i++) {
    ASSERT_OK(api().cuMemAlloc_v2(&blocks[i], 100 + 40 * i));
    EXPECT_EQ(0U, blocks[i] % 256);
    ASSERT_OK(api().cuMemsetD8_v2(blocks[i], static_cast<unsigned char>(i), 100 + 40 * i));
  }
  for (std::size_t i = 0; i < blocks.size(); i++) {
    EXPECT_EQ(std::vector<std::uint8_t>(100 + 40 * i, static_cast<std::uint8_t>(i)),
              read_bytes(blocks[i], 100 + 40 * i));
    EXPECT_OK(api().cuMemFree_v2(blocks[i]));
  }
}

TEST_F(MemoryTest, UseOfFreedMemoryIsRefused) {
  CUdeviceptr memory = 0;
  ASSERT_OK(api().cuMemAlloc_v2(&memory, 8 * kMiB));
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  ASSERT_OK(api().cuMemGetAddressRange_v2(&base, &bytes, memory + kMiB));
  EXPECT_EQ(memory, base);
  EXPECT_EQ(8 * kMiB, bytes);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuMemFree_v2(memory + 512));
  EXPECT_OK(api().cuMemFree_v2(memory));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuMemFree_v2(memory));
  char byte = 0;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuMemcpyDtoH_v2(&byte, memory, 1));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuMemsetD8_v2(memory, 0, 1));
}

TEST_F(MemoryTest, CopiesBeyondTheEndAreRefused) {
  Mapped memory(2 * kMiB);
  std::vector<char> host(4 * kMiB);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuMemcpyHtoD_v2(memory.address, host.data(), host.size()));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuMemcpyDtoH_v2(host.data(), memory.address + kMiB, 2 * kMiB));
}

TEST_F(MemoryTest, PinnedMemoryIsSharedByHostAndDevice) {
  const CUmodule module = load_kernels();
  void* pinned = nullptr;
  ASSERT_OK(api().cuMemHostAlloc(&pinned, kMiB, CU_MEMHOSTALLOC_PORTABLE));
  auto* words = static_cast<std::uint32_t*>(pinned);
  words[9] = 1;
  ASSERT_OK(launch(kernel(module, "fill"), 1, 32, nullptr, reinterpret_cast<std::uint64_t>(pinned),
                   std::uint32_t{50}, std::uint64_t{8}));
  ASSERT_OK(launch(kernel(module, "add_one"), 1, 32, nullptr, reinterpret_cast<std::uint64_t>(words + 9),
                   std::uint64_t{1}));
  ASSERT_OK(api().cuCtxSynchronize());
  EXPECT_EQ(57U, words[7]);
  EXPECT_EQ(2U, words[9]);
  unsigned type = 0;
  EXPECT_OK(api().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        reinterpret_cast<CUdeviceptr>(pinned)));
  EXPECT_EQ(static_cast<unsigned>(CU_MEMORYTYPE_HOST), type);
  EXPECT_OK(api().cuMemFreeHost(pinned));
  EXPECT_NE(CUDA_SUCCESS, api().cuMemFreeHost(pinned));
  EXPECT_OK(api().cuModuleUnload(module));
}

TEST_F(MemoryTest, CopiesFromPinnedMemoryAreAsynchronous) {
  void* pinned = nullptr;
  CUdeviceptr memory = 0;
  CUstream stream = nullptr;
  ASSERT_OK(api().cuMemAllocHost_v2(&pinned, 4 * kMiB));
  ASSERT_OK(api().cuMemAlloc_v2(&memory, 4 * kMiB));
  ASSERT_OK(api().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::memset(pinned, 1, 4 * kMiB);
  {
    Gate gate(stream);
    ASSERT_OK(api().cuMemcpyHtoDAsync_v2(memory, pinned, 4 * kMiB, stream));
    std::memset(pinned, 2, 4 * kMiB);  // the copy has not begun, so it copies this new value
  }
  ASSERT_OK(api().cuStreamSynchronize(stream));
  EXPECT_EQ(std::vector<std::uint8_t>(16, 2), read_bytes(memory + 4 * kMiB - 16, 16));
  EXPECT_OK(api().cuStreamDestroy_v2(stream));
  EXPECT_OK(api().cuMemFree_v2(memory));
  EXPECT_OK(api().cuMemFreeHost(pinned));
}

// Copies may cover whole lines or not, be long or short, and start and end anywhere within a line. No byte is
// left out, and no byte outside is changed.
TEST_F(MemoryTest, CopiesOfAnyLengthAndOffsetPreserveAllBytes) {
  constexpr std::size_t kBytes = kMiB + 4096;
  void* pinned = nullptr;
  ASSERT_OK(api().cuMemHostAlloc(&pinned, kBytes, CU_MEMHOSTALLOC_PORTABLE));
  const std::span<std::uint8_t> host(static_cast<std::uint8_t*>(pinned), kBytes);
  CUdeviceptr memory = 0;
  ASSERT_OK(api().cuMemAlloc_v2(&memory, kBytes));
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): the same bytes each time
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{63}, 256 * std::size_t{1024} - 1,
                                  256 * std::size_t{1024}, 256 * std::size_t{1024} + 65, kMiB + 1}) {
    for (const auto& [from, to] : {std::pair(0, 0), std::pair(1, 0), std::pair(0, 1), std::pair(63, 130)}) {
      std::generate(host.begin(), host.end(), [&random] { return static_cast<std::uint8_t>(random()); });
      std::vector<std::uint8_t> expected(kBytes, 0xee);
      std::copy_n(host.begin() + from, bytes, expected.begin() + to);
      ASSERT_OK(api().cuMemsetD8_v2(memory, 0xee, kBytes));
      ASSERT_OK(api().cuMemcpyHtoD_v2(memory + to, host.data() + from, bytes));
      ASSERT_OK(api().cuMemcpyDtoH_v2(host.data(), memory, kBytes));
      ASSERT_TRUE(std::equal(host.begin(), host.end(), expected.begin()))
          << bytes << " bytes from " << from << " to " << to << " of the device's memory";
      const std::vector<std::uint8_t> part(expected.begin() + to, expected.begin() + to + bytes);
      std::fill(host.begin(), host.end(), 0x11);
      ASSERT_OK(api().cuMemcpyDtoH_v2(host.data() + from, memory + to, bytes));
      ASSERT_TRUE(std::equal(part.begin(), part.end(), host.begin() + from));
      ASSERT_EQ(kBytes - bytes, std::count(host.begin(), host.begin() + from, 0x11) +
                                    std::count(host.begin() + from + bytes, host.end(), 0x11));
    }
  }
  EXPECT_OK(api().cuMemFree_v2(memory));
  EXPECT_OK(api().cuMemFreeHost(pinned));
}

TEST_F(MemoryTest, RegisteringTheSameMemoryTwiceIsRefused) {
  constexpr std::size_t kBytes = 1 << 20;
  const std::unique_ptr<char[], void (*)(char*)> host(static_cast<char*>(std::aligned_alloc(4096, kBytes)),
                                                      [](char* p) { std::free(p); });
  std::memset(host.get(), 3, kBytes);
  CUdeviceptr memory = 0;
  CUstream stream = nullptr;
  ASSERT_OK(api().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  ASSERT_OK(api().cuMemAlloc_v2(&memory, kBytes));
  ASSERT_OK(api().cuMemHostRegister_v2(host.get(), kBytes, 0));
  EXPECT_CUDA(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, api().cuMemHostRegister_v2(host.get(), kBytes, 0));
  {
    Gate gate(stream);
    ASSERT_OK(api().cuMemcpyHtoDAsync_v2(memory, host.get(), kBytes, stream));
    std::memset(host.get(), 4, kBytes);
    ASSERT_OK(api().cuMemsetD8Async(memory, 5, 1, stream));
    ASSERT_OK(api().cuMemcpyDtoHAsync_v2(host.get(), memory, 2, stream));
  }
  ASSERT_OK(api().cuStreamSynchronize(stream));
  EXPECT_EQ(5, host[0]);
  EXPECT_EQ(4, host[1]);
  EXPECT_OK(api().cuMemHostUnregister(host.get()));
  EXPECT_CUDA(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, api().cuMemHostUnregister(host.get()));
  EXPECT_OK(api().cuMemFree_v2(memory));
  EXPECT_OK(api().cuStreamDestroy_v2(stream));
}

// A mapping of a memory file.
class MappedFile {
 public:
  MappedFile(int fd, std::size_t bytes)
      : bytes_(bytes), at_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) {}
  ~MappedFile() { ::munmap(at_, bytes_); }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  [[nodiscard]] std::uint8_t* get() const { return static_cast<std::uint8_t*>(at_); }

 private:
  std::size_t bytes_;
  void* at_;
};

// A source and a target on one machine pin the same pages in this way, each in its own mapping.
TEST_F(MemoryTest, RegisteredFileMemoryIsSharedByAllMappings) {
  const int fd = ::memfd_create("conformance", MFD_CLOEXEC);
  ASSERT_EQ(0, ::ftruncate(fd, 4 * kMiB));
  const MappedFile one(fd, 4 * kMiB);
  const MappedFile other(fd, 4 * kMiB);
  CUdeviceptr memory = 0;
  CUstream stream = nullptr;
  ASSERT_OK(api().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  ASSERT_OK(api().cuMemAlloc_v2(&memory, 4 * kMiB));
  ASSERT_OK(api().cuMemHostRegister_v2(one.get(), 4 * kMiB, 0));
  ASSERT_OK(api().cuMemHostRegister_v2(other.get(), 4 * kMiB, 0));
  ::close(fd);
  for (std::size_t i = 0; i < 4 * kMiB; ++i) one.get()[i] = static_cast<std::uint8_t>(i * 7 + (i >> 12));
  {
    Gate gate(stream);
    ASSERT_OK(api().cuMemcpyHtoDAsync_v2(memory, other.get(), 4 * kMiB, stream));
    one.get()[3 * kMiB + 5] = 0xEE;  // the copy has not begun, so it copies this new value
    ASSERT_OK(api().cuMemcpyDtoHAsync_v2(other.get() + 17, memory + 3 * kMiB + 5, 1, stream));
  }
  ASSERT_OK(api().cuStreamSynchronize(stream));
  EXPECT_EQ(0xEE, one.get()[17]);
  EXPECT_EQ(std::vector<std::uint8_t>(one.get() + 18, one.get() + 3 * kMiB),
            read_bytes(memory + 18, 3 * kMiB - 18));
  {
    CUcontext later = nullptr;
    CUdeviceptr there = 0;
    ASSERT_OK(api().cuCtxCreate_v2(&later, 0, 0));
    ASSERT_OK(api().cuMemAlloc_v2(&there, kMiB));
    ASSERT_OK(api().cuMemcpyHtoD_v2(there, one.get() + 3, kMiB));
    EXPECT_EQ(std::vector<std::uint8_t>(other.get() + 3, other.get() + 3 + kMiB), read_bytes(there, kMiB));
    EXPECT_OK(api().cuMemFree_v2(there));
    EXPECT_OK(api().cuCtxDestroy_v2(later));
  }
  ASSERT_OK(api().cuMemHostUnregister(one.get()));
  ASSERT_OK(api().cuMemcpyHtoD_v2(memory + 1, other.get() + 3 * kMiB, kMiB)) << "still registered";
  ASSERT_OK(api().cuMemHostUnregister(other.get()));
  EXPECT_EQ(std::vector<std::uint8_t>(one.get() + 3 * kMiB, one.get() + 4 * kMiB),
            read_bytes(memory + 1, kMiB));
  ASSERT_OK(api().cuMemcpyDtoH_v2(one.get() + 100, memory, kMiB)) << "no longer, as any memory";
  EXPECT_EQ(std::vector<std::uint8_t>(other.get() + 100, other.get() + 100 + kMiB), read_bytes(memory, kMiB));
  EXPECT_OK(api().cuMemFree_v2(memory));
  EXPECT_OK(api().cuStreamDestroy_v2(stream));
}

// A copy uses only the pages that the program has mapped. It does not use pages of another file with the same
// bytes, or pages at another offset.
TEST_F(MemoryTest, CopiesOfRegisteredMemoryUseThePagesMappedByTheProgram) {
  const int fd = ::memfd_create("conformance", MFD_CLOEXEC);
  ASSERT_EQ(0, ::ftruncate(fd, 2 * kMiB));
  const int other = ::memfd_create("conformance", MFD_CLOEXEC);
  ASSERT_EQ(0, ::ftruncate(other, 2 * kMiB));
  const MappedFile file(fd, 2 * kMiB);
  std::memset(file.get(), 1, kMiB);
  std::memset(file.get() + kMiB, 2, kMiB);
  CUdeviceptr memory = 0;
  ASSERT_OK(api().cuMemAlloc_v2(&memory, 2 * kMiB));
  const auto copied = [memory](void* at, std::size_t bytes = kMiB) {
    EXPECT_OK(api().cuMemHostRegister_v2(at, bytes, 0));
    EXPECT_OK(api().cuMemcpyHtoD_v2(memory, at, bytes));
    EXPECT_OK(api().cuMemHostUnregister(at));
    return read_bytes(memory + bytes - 1, 1)[0];
  };
  void* second_half = ::mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, kMiB);
  EXPECT_EQ(2, copied(second_half));
  void* own = ::mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  std::memset(own, 3, kMiB);
  EXPECT_EQ(3, copied(own));
  auto* more = static_cast<std::uint8_t*>(
      ::mmap(nullptr, 2 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_EQ(more, ::mmap(more, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0));
  more[2 * kMiB - 1] = 4;
  EXPECT_EQ(4, copied(more, 2 * kMiB)) << "other memory behind the file's";
  ::munmap(more, 2 * kMiB);
  ::close(fd);
  EXPECT_EQ(1, copied(file.get())) << "its file is not open any more";
  ::munmap(second_half, kMiB);
  ::munmap(own, kMiB);
  ::close(other);
  EXPECT_OK(api().cuMemFree_v2(memory));
}

TEST_F(MemoryTest, APartOfAFileMappingCanBeRegistered) {
  const int fd = ::memfd_create("conformance", MFD_CLOEXEC);
  ASSERT_EQ(0, ::ftruncate(fd, 2 * kMiB));
  const MappedFile file(fd, 2 * kMiB);
  CUdeviceptr memory = 0;
  ASSERT_OK(api().cuMemAlloc_v2(&memory, kMiB));
  std::memset(file.get(), 1, kMiB);
  std::memset(file.get() + kMiB, 2, kMiB);
  for (const auto& [begin, bytes] : {std::pair{std::size_t{0}, kMiB}, {kMiB, kMiB}}) {
    ASSERT_OK(api().cuMemHostRegister_v2(file.get() + begin, bytes, 0));
    ASSERT_OK(api().cuMemcpyHtoD_v2(memory, file.get() + begin, bytes));
    EXPECT_EQ(std::vector<std::uint8_t>(bytes, begin == 0 ? 1 : 2), read_bytes(memory, bytes));
    ASSERT_OK(api().cuMemcpyDtoH_v2(file.get() + begin, memory, bytes));
    EXPECT_OK(api().cuMemHostUnregister(file.get() + begin));
  }
  EXPECT_OK(api().cuMemFree_v2(memory));
  ::close(fd);
}

TEST_F(MemoryTest, PointerAttributesAreReported) {
  CUdeviceptr memory = 0;
  ASSERT_OK(api().cuMemAlloc_v2(&memory, kMiB));
  unsigned type = 0;
  int ordinal = -1;
  CUcontext owner = nullptr;
  EXPECT_OK(api().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 100));
  EXPECT_EQ(static_cast<unsigned>(CU_MEMORYTYPE_DEVICE), type);
  EXPECT_OK(api().cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory));
  EXPECT_EQ(0, ordinal);
  EXPECT_OK(api().cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
  EXPECT_EQ(context_, owner);
  int local = 0;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                                    reinterpret_cast<CUdeviceptr>(&local)));
  EXPECT_OK(api().cuMemFree_v2(memory));
}

TEST_F(MemoryTest, HostAccessToDeviceMemoryIsAFault) {
  CUdeviceptr memory = 0;
  ASSERT_OK(api().cuMemAlloc_v2(&memory, kMiB));
  ASSERT_OK(api().cuCtxSynchronize());
  EXPECT_EXIT(*reinterpret_cast<volatile char*>(memory) = 1, testing::KilledBySignal(SIGSEGV), "");
  EXPECT_OK(api().cuMemFree_v2(memory));
}

TEST_F(MemoryTest, AForkedChildCannotUseTheDriver) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::size_t free_bytes = 0;
    std::size_t total = 0;
    ::_exit(api().cuMemGetInfo_v2(&free_bytes, &total));
  }
  int status = 0;
  ASSERT_EQ(child, ::waitpid(child, &status, 0));
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(CUDA_ERROR_NOT_INITIALIZED, WEXITSTATUS(status));
  EXPECT_OK(api().cuCtxSynchronize());
}

TEST_F(MemoryTest, DriverCallsFailBeforeInit) {
  Child child("uninitialized");
  EXPECT_EQ(0, child.wait());
}

TEST_F(MemoryTest, EachThreadHasItsOwnCurrentContext) {
  CUresult before = CUDA_SUCCESS;
  CUresult after = CUDA_ERROR_UNKNOWN;
  std::thread([&] {
    before = api().cuCtxSynchronize();
    if (api().cuCtxPushCurrent_v2(context_) != CUDA_SUCCESS) return;
    after = api().cuCtxSynchronize();
    api().cuCtxPopCurrent_v2(nullptr);
  }).join();
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, before);
  EXPECT_OK(after);
}

TEST_F(MemoryTest, ADestroyedContextIsRefusedAndItsMemoryIsFreed) {
  const std::size_t before = free_memory();
  CUcontext other = nullptr;
  ASSERT_OK(api().cuCtxCreate_v2(&other, 0, 0));
  CUdeviceptr memory = 0;
  ASSERT_OK(api().cuMemAlloc_v2(&memory, 64 * kMiB));
  ASSERT_OK(api().cuCtxDestroy_v2(other));
  ASSERT_OK(api().cuCtxSetCurrent(context_));
  EXPECT_TRUE(comes_back(before));
  EXPECT_NE(CUDA_SUCCESS, api().cuMemsetD8_v2(memory, 0, 16));
}

TEST_F(MemoryTest, DevicesCopyToPeerDevices) {
  if (!two_devices()) GTEST_SKIP() << "one device";
  CUcontext second = nullptr;
  ASSERT_OK(api().cuDevicePrimaryCtxRetain(&second, 1));
  CUdeviceptr here = 0;
  CUdeviceptr there = 0;
  ASSERT_OK(api().cuMemAlloc_v2(&here, 4 * kMiB));
  ASSERT_OK(api().cuMemsetD8_v2(here, 0x3c, 4 * kMiB));
  ASSERT_OK(api().cuCtxPushCurrent_v2(second));
  ASSERT_OK(api().cuMemAlloc_v2(&there, 4 * kMiB));
  ASSERT_OK(api().cuMemcpyPeer(there, second, here, context_, 4 * kMiB));
  EXPECT_EQ(std::vector<std::uint8_t>(16, 0x3c), read_bytes(there + 4 * kMiB - 16, 16));
  ASSERT_OK(api().cuMemsetD8_v2(there, 0x4d, 4 * kMiB));
  ASSERT_OK(api().cuCtxPopCurrent_v2(nullptr));
  ASSERT_OK(api().cuMemcpyPeer(here, context_, there, second, 4 * kMiB));
  EXPECT_EQ(std::vector<std::uint8_t>(16, 0x4d), read_bytes(here, 16));
  // The copy goes from the other device directly to the host, with this context current.
  EXPECT_EQ(std::vector<std::uint8_t>(16, 0x4d), read_bytes(there, 16));
  EXPECT_OK(api().cuDevicePrimaryCtxRelease_v2(1));
  EXPECT_OK(api().cuMemFree_v2(here));
}

TEST_F(MemoryTest, PeersAccessPlainMemoryAfterPeerAccessIsEnabled) {
  int can = 0;
  if (!two_devices() || api().cuDeviceCanAccessPeer(&can, 1, 0) != CUDA_SUCCESS || can == 0) {
    GTEST_SKIP() << "no two devices with peer access";
  }
  CUdeviceptr memory = 0;
  ASSERT_OK(api().cuMemAlloc_v2(&memory, 2 * kMiB));
  ASSERT_OK(api().cuMemsetD8_v2(memory, 0, 2 * kMiB));
  CUcontext second = nullptr;
  ASSERT_OK(api().cuDevicePrimaryCtxRetain(&second, 1));
  ASSERT_OK(api().cuCtxPushCurrent_v2(second));
  ASSERT_OK(api().cuCtxEnablePeerAccess(context_, 0));
  EXPECT_CUDA(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, api().cuCtxEnablePeerAccess(context_, 0));
  const CUmodule module = load_kernels();
  ASSERT_OK(launch(kernel(module, "add_one"), 1, 32, nullptr, std::uint64_t{memory}, std::uint64_t{4}));
  EXPECT_OK(api().cuCtxSynchronize());
  EXPECT_OK(api().cuModuleUnload(module));
  ASSERT_OK(api().cuCtxPopCurrent_v2(nullptr));
  EXPECT_EQ((std::vector<std::uint32_t>{1, 1, 1, 1, 0}), read_words(memory, 5));
  EXPECT_OK(api().cuDevicePrimaryCtxRelease_v2(1));
  EXPECT_OK(api().cuMemFree_v2(memory));
}

TEST_F(MemoryTest, ErrorsHaveNames) {
  const char* name = nullptr;
  ASSERT_OK(api().cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name));
  EXPECT_STREQ("CUDA_ERROR_OUT_OF_MEMORY", name);
  ASSERT_OK(api().cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &name));
  EXPECT_STREQ("out of memory", name);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuGetErrorName(static_cast<CUresult>(123456), &name));
}

TEST_F(MemoryTest, UnknownDevicesAreRefused) {
  int count = 0;
  CUdevice device = 0;
  ASSERT_OK(api().cuDeviceGetCount(&count));
  EXPECT_GE(count, 1);
  EXPECT_CUDA(CUDA_ERROR_INVALID_DEVICE, api().cuDeviceGet(&device, count));
  EXPECT_CUDA(CUDA_ERROR_INVALID_DEVICE, api().cuDeviceGet(&device, -1));
}

TEST_F(MemoryTest, AProgramSeesOnlyItsVisibleDevices) {
  if (!two_devices()) GTEST_SKIP() << "one device";
  CUuuid uuid{};
  ASSERT_OK(api().cuDeviceGetUuid_v2(&uuid, 1));
  ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  Child child("show_device");
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(std::string(uuid.bytes, sizeof uuid.bytes), child.receive_text());
  EXPECT_EQ(0, child.wait());
}

TEST_F(MemoryTest, FunctionsAreFoundByName) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
  ASSERT_OK(api().cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 0, &status));
  EXPECT_EQ(CU_GET_PROC_ADDRESS_SUCCESS, status);
  EXPECT_EQ(reinterpret_cast<void*>(api().cuMemAlloc_v2.function), function);
}

}  // namespace
}  // namespace conformance
