// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/shim/memory/slab_heap.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace ckpt::shim {
namespace {

constexpr std::uint64_t kSlab = std::uint64_t{2} << 20;

TEST(SlabHeap, EmptyHeapReturnsNoMemory) {
  SlabHeap heap;
  EXPECT_EQ(std::nullopt, heap.allocate(512));
}

TEST(SlabHeap, AWholeSlabCanBeTakenAndIsEmptyAfterItsReturn) {
  SlabHeap heap;
  heap.add_slab(4 * kSlab);
  ASSERT_EQ(4 * kSlab, heap.allocate(kSlab));
  EXPECT_EQ(std::nullopt, heap.allocate(512));
  EXPECT_EQ(4 * kSlab, heap.give(4 * kSlab, kSlab));
  heap.remove_slab(4 * kSlab);
  EXPECT_EQ(std::nullopt, heap.allocate(512));
}

TEST(SlabHeap, AdjacentSlabsAreNotMerged) {
  SlabHeap heap;
  heap.add_slab(4 * kSlab);
  heap.add_slab(5 * kSlab);
  EXPECT_EQ(std::nullopt, heap.allocate(kSlab + 512));
  const auto first = heap.allocate(kSlab);
  const auto second = heap.allocate(kSlab);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(*second, heap.give(*second, kSlab));
  EXPECT_EQ(*first, heap.give(*first, kSlab));
  EXPECT_EQ(std::nullopt, heap.allocate(kSlab + 512));
}

TEST(SlabHeap, HeapTakesTheBestFittingPiece) {
  SlabHeap heap;
  heap.add_slab(kSlab);
  const auto hole = heap.allocate(1024);
  const auto fence = heap.allocate(512);
  ASSERT_TRUE(hole && fence);
  heap.give(*hole, 1024);
  EXPECT_EQ(hole, heap.allocate(1024));
}

// Pieces are taken and returned in random order. They are aligned, lie within one slab, and never overlap. In
// the end all slabs are whole.
TEST(SlabHeap, PiecesNeverOverlapAndAllBytesAreReturned) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    SlabHeap heap;
    std::map<std::uint64_t, std::uint64_t> taken;
    std::uint64_t next_slab = 16 * kSlab;
    std::map<std::uint64_t, std::uint64_t> bytes_in_slab;
    for (int step = 0; step < 4000; ++step) {
      if (taken.empty() || random() % 100 < (step < 2500 ? 60 : 40)) {
        const std::uint64_t bytes = SlabHeap::rounded(1 + random() % (1 + (1U << (random() % 20))));
        auto address = heap.allocate(bytes);
        if (!address) {
          heap.add_slab(next_slab);
          bytes_in_slab[next_slab] = 0;
          next_slab += kSlab * (1 + random() % 2);
          address = heap.allocate(bytes);
        }
        ASSERT_TRUE(address);
        ASSERT_EQ(0U, *address % SlabHeap::kAlignment);
        const std::uint64_t slab = heap.slab_of(*address);
        ASSERT_TRUE(bytes_in_slab.contains(slab));
        ASSERT_EQ(slab, heap.slab_of(*address + bytes - 1));
        const auto after = taken.lower_bound(*address);
        ASSERT_TRUE(after == taken.end() || *address + bytes <= after->first);
        ASSERT_TRUE(after == taken.begin() || std::prev(after)->first + std::prev(after)->second <= *address);
        taken[*address] = bytes;
        bytes_in_slab[slab] += bytes;
      } else {
        const auto found = std::next(taken.begin(), static_cast<long>(random() % taken.size()));
        const auto [address, bytes] = *found;
        taken.erase(found);
        const std::uint64_t slab = heap.slab_of(address);
        bytes_in_slab[slab] -= bytes;
        const auto empty = heap.give(address, bytes);
        ASSERT_EQ(bytes_in_slab[slab] == 0, empty.has_value());
        if (!empty) continue;
        ASSERT_EQ(slab, *empty);
        if (random() % 2 == 0) continue;
        heap.remove_slab(slab);
        bytes_in_slab.erase(slab);
      }
    }
    for (const auto& [address, bytes] : taken) heap.give(address, bytes);
    for (std::size_t left = bytes_in_slab.size(); left > 0; --left) ASSERT_TRUE(heap.allocate(kSlab));
    ASSERT_FALSE(heap.allocate(512));
  }
}

}  // namespace
}  // namespace ckpt::shim
