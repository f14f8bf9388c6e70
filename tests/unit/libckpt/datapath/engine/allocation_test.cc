// SPDX-License-Identifier: Apache-2.0
// The data path allocates nothing per chunk: a round of many chunks makes no more allocations than a round of
// few chunks.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "tests/unit/libckpt/datapath/engine/engine_pair.h"

namespace {
std::atomic<std::uint64_t> allocations{0};
}

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace ckpt::engine {
namespace {

using test::EnginePair;
using test::kKiB;
using test::kMiB;
using test::must;

std::uint64_t allocations_of_round(EnginePair& pair, std::uint64_t bytes, unsigned seed) {
  pair.source().write(0, test::random_floats(bytes, seed));
  const std::uint64_t before = allocations.load();
  const RoundReport report = must(pair.sender().run_round());
  const std::uint64_t made = allocations.load() - before;
  EXPECT_EQ(report.dirty_bytes, bytes);
  return made;
}

TEST(Allocations, AllocationsOfARoundAreIndependentOfItsChunks) {
  for (const codec::CodecMode codec :
       {codec::CodecMode::kRaw, codec::CodecMode::kAuto, codec::CodecMode::kDifference}) {
    EnginePair pair({.sizes = {32 * kMiB}, .codec = codec, .shadow_memory = 32 * kMiB});
    pair.announce();
    (void)allocations_of_round(pair, 32 * kMiB, 1);  // this round lets the buffers grow to their final sizes
    const std::uint64_t few = allocations_of_round(pair, 2 * kMiB, 2);
    const std::uint64_t many = allocations_of_round(pair, 32 * kMiB, 3);
    EXPECT_LE(many, few + 32) << "16 times the chunks, of 64 KiB: 480 more of them";
  }
}

}  // namespace
}  // namespace ckpt::engine
