// SPDX-License-Identifier: Apache-2.0
// Tests of a source and a target on one machine: chunks stay in the source's staging memory until they are
// copied to the target's device.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "libckpt/datapath/engine/shared/pinned_memory.h"
#include "tests/unit/libckpt/datapath/engine/engine_pair.h"

namespace ckpt::engine {
namespace {

using test::device;
using test::EnginePair;
using test::kKiB;
using test::kMiB;
using test::must;
using testing::HasSubstr;

// Hooks that record where the source has staged a chunk, and whether the target's writes to this memory
// change the same bytes.
class SameBytes : public FaultHooks {
 public:
  void on_staged(const ChunkId& id, std::span<std::byte> bytes) override {
    if (id.chunk != 3) return;
    const std::lock_guard lock(mutex_);
    staged_ = bytes;
  }
  void on_received(const ChunkId& id, std::span<std::byte> bytes) override {
    if (id.chunk != 3) return;
    const std::lock_guard lock(mutex_);
    const std::byte before = staged_[7];
    bytes[7] ^= std::byte{1};
    same = staged_[7] != before;
    bytes[7] ^= std::byte{1};
  }
  std::optional<bool> same;

 private:
  std::mutex mutex_;
  std::span<std::byte> staged_;
};

bool stays_where_it_was_staged(codec::CodecMode codec, bool same_host) {
  SameBytes hooks;
  EnginePair pair({.source_hooks = &hooks, .target_hooks = &hooks, .codec = codec, .same_host = same_host});
  pair.announce();
  pair.source().write(0, test::random_floats(4 * kMiB, 1));
  pair.switch_over();
  EXPECT_EQ(pair.differences(), 0U);
  EXPECT_EQ(pair.mismatches(), 0U);
  return hooks.same.value();
}

TEST(Near, PlainChunksStayInStagingAndEncodedChunksAreCopied) {
  EXPECT_TRUE(stays_where_it_was_staged(codec::CodecMode::kRaw, true));
  EXPECT_FALSE(stays_where_it_was_staged(codec::CodecMode::kRaw, false));
  EXPECT_FALSE(stays_where_it_was_staged(codec::CodecMode::kPlanes, true));
}

TEST(Near, LinkIsMeasuredAndTheLimitIsObeyed) {
  EnginePair pair({.same_host = true});
  pair.announce();
  EXPECT_GT(must(pair.sender().measure_link()), 0U);
  pair.source().write(0, test::random_bytes(4 * kMiB, 1));
  pair.switch_over();
  EXPECT_EQ(pair.differences(), 0U);
}

TEST(Near, ADisconnectedTargetLeavesTheMemoryOfTheSource) {
  EnginePair pair({.same_host = true});
  pair.announce();
  pair.source().write(0, test::random_bytes(4 * kMiB, 1));
  must(pair.sender().run_round());
  pair.end_receiver();
  EXPECT_FALSE(pair.sender().run_round().has_value());
}

unsigned mappings_of_staging_memory() {
  std::ifstream maps("/proc/self/maps");
  unsigned count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("ckpt-staging") != std::string::npos ? 1 : 0;
  return count;
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST(Near, SessionEndLeavesNoMappingOrDescriptor) {
  { const EnginePair first({.same_host = true}); }  // opens the descriptors that a process opens only once
  const unsigned before = mappings_of_staging_memory();
  const std::size_t descriptors = open_descriptors();
  {
    EnginePair pair({.same_host = true});
    pair.announce();
    pair.switch_over();
    EXPECT_EQ(mappings_of_staging_memory(), before + 3)
        << "two pools, and the target's view of the source's, for all lanes";
  }
  EXPECT_EQ(mappings_of_staging_memory(), before);
  EXPECT_EQ(open_descriptors(), descriptors);
}

TEST(PinnedMemory, MemoryIsZeroAndSharedByAllProcessesThatOpenItsFile) {
  auto memory = must(PinnedMemory::create(device(0), 3 * kMiB));
  ASSERT_EQ(memory.bytes().size(), 3 * kMiB);
  EXPECT_TRUE(std::all_of(memory.bytes().begin(), memory.bytes().end(),
                          [](std::byte b) { return b == std::byte{0}; }));
  auto opened = must(PinnedMemory::open(device(1), UniqueFd(::dup(memory.file())), 3 * kMiB));
  memory.bytes()[2 * kMiB] = std::byte{7};
  EXPECT_EQ(opened.bytes()[2 * kMiB], std::byte{7});
  const PinnedMemory moved = std::move(memory);
  EXPECT_EQ(moved.bytes()[2 * kMiB], std::byte{7});
}

// Copies of a pinned page return at once and complete on the stream.
TEST(PinnedMemory, MemoryIsPinnedForTheDeviceOnBothSides) {
  const auto memory = must(PinnedMemory::create(device(0), 2 * kMiB));
  const auto opened = must(PinnedMemory::open(device(1), UniqueFd(::dup(memory.file())), 2 * kMiB));
  for (const auto& [pinned, ordinal] : {std::pair{&memory, 0}, {&opened, 1}}) {
    const ContextScope scope(device(ordinal));
    CUmemorytype type{};
    ASSERT_EQ(
        device(ordinal).api().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                    reinterpret_cast<CUdeviceptr>(pinned->bytes().data())),
        CUDA_SUCCESS);
    EXPECT_EQ(type, CU_MEMORYTYPE_HOST);
  }
}

// A scope in which one function is missing from the driver's table.
class NothingIsRegistered {
 public:
  NothingIsRegistered() : slot_(const_cast<DriverApi&>(device(0).api()).cuMemHostRegister_v2), real_(slot_) {
    slot_ = [](void*, std::size_t, unsigned) { return CUDA_ERROR_NOT_SUPPORTED; };
  }
  ~NothingIsRegistered() { slot_ = real_; }

 private:
  decltype(&::cuMemHostRegister_v2)& slot_;
  decltype(&::cuMemHostRegister_v2) real_;
};

TEST(PinnedMemory, MemoryIsAllocatedByTheDriverIfFilesCannotBePinned) {
  const NothingIsRegistered nothing;
  const unsigned before = mappings_of_staging_memory();
  const auto memory = must(PinnedMemory::create(device(0), 2 * kMiB));
  EXPECT_EQ(memory.file(), -1);
  EXPECT_EQ(memory.bytes()[2 * kMiB - 1], std::byte{0});
  EXPECT_EQ(mappings_of_staging_memory(), before);
  const auto opened = PinnedMemory::open(device(1), must(make_memory_file("sealed", kMiB)), kMiB);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), ErrorCode::kNotSupported);
  EnginePair pair({.same_host = true});
  pair.announce();
  pair.source().write(0, test::random_bytes(4 * kMiB, 1));
  pair.switch_over();
  EXPECT_EQ(pair.differences(), 0U);
}

TEST(PinnedMemory, ShrinkableOrInvalidFileIsRefused) {
  const auto refuses = [](UniqueFd file, std::size_t bytes) {
    const auto opened = PinnedMemory::open(device(1), std::move(file), bytes);
    return !opened && opened.error().code() == ErrorCode::kProtocol;
  };
  const UniqueFd sealed = must(make_memory_file("sealed", kMiB));
  EXPECT_TRUE(PinnedMemory::open(device(1), UniqueFd(::dup(sealed.get())), kMiB));
  EXPECT_TRUE(refuses(UniqueFd(::dup(sealed.get())), 2 * kMiB));
  EXPECT_TRUE(refuses(UniqueFd(::dup(sealed.get())), kMiB / 2));
  EXPECT_TRUE(refuses(UniqueFd(::dup(sealed.get())), 0));
  for (const unsigned seals : {0, F_SEAL_SHRINK, F_SEAL_GROW}) {
    UniqueFd open(::memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(open.get(), kMiB), 0);
    ASSERT_EQ(::fcntl(open.get(), F_ADD_SEALS, seals), 0);
    EXPECT_TRUE(refuses(std::move(open), kMiB)) << seals;
  }
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  const UniqueFd write_end(pipe[1]);
  EXPECT_TRUE(refuses(UniqueFd(pipe[0]), kMiB));
  EXPECT_TRUE(refuses(UniqueFd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)), kMiB));
  EXPECT_TRUE(refuses(UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)), kMiB));
}

}  // namespace
}  // namespace ckpt::engine
