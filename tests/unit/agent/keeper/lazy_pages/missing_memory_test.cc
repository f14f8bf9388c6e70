// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/lazy_pages/missing_memory.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>

namespace ckpt::lazy_pages {
namespace {

constexpr std::uint64_t kPage = 4096;
const std::array<std::byte, 1> kSource{};

const std::byte* source(std::uint64_t page) {
  return kSource.data() + page * kPage;
}

// A model of missing memory, page by page.
class Model {
 public:
  void add(std::uint64_t page, std::uint64_t count, std::uint64_t from) {
    for (std::uint64_t i = 0; i < count; ++i) pages_[page + i] = source(from + i);
  }
  void drop(std::uint64_t page, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) pages_.erase(page + i);
  }
  void move(std::uint64_t from, std::uint64_t to, std::uint64_t count) {
    std::map<std::uint64_t, const std::byte*> moved;
    for (std::uint64_t i = 0; i < count; ++i) {
      if (const auto at = pages_.find(from + i); at != pages_.end()) moved[to + i] = at->second;
    }
    drop(from, count);
    drop(to, count);
    for (const auto& [page, content] : moved) pages_[page] = content;
  }
  void expect_same(const MissingMemory& memory, std::uint64_t end) const {
    EXPECT_EQ(memory.is_empty(), pages_.empty());
    for (std::uint64_t page = 0; page < end; ++page) {
      const auto wanted = pages_.find(page);
      const auto found = memory.at(page * kPage, kPage);
      ASSERT_EQ(found.has_value(), wanted != pages_.end()) << "page " << page;
      const std::byte* const from = found ? found->from : nullptr;
      ASSERT_EQ(from, found ? wanted->second : nullptr) << "page " << page;
    }
  }

 private:
  std::map<std::uint64_t, const std::byte*> pages_;
};

TEST(MissingMemory, RangesMatchTheMemoryChangesOfTheProgram) {
  constexpr std::uint64_t kPages = 64;
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    MissingMemory memory;
    Model model;
    for (int step = 0; step < 60; ++step) {
      const std::uint64_t page = random() % kPages;
      const std::uint64_t count = random() % (kPages - page) + 1;
      switch (random() % 3) {
        case 0:
          memory.add({page * kPage, count * kPage, source(step * kPages)});
          model.add(page, count, step * kPages);
          break;
        case 1:
          memory.drop(page * kPage, count * kPage);
          model.drop(page, count);
          break;
        default: {
          // As with mremap, the old and the new range do not overlap.
          const std::uint64_t to =
              random() % 2 == 0 ? page + kPages : (page >= count ? page - count : page + kPages);
          memory.move(page * kPage, to * kPage, count * kPage);
          model.move(page, to, count);
        }
      }
      model.expect_same(memory, 2 * kPages);
      if (::testing::Test::HasFailure()) FAIL() << "seed " << seed << " step " << step;
    }
  }
}

TEST(MissingMemory, NextRangeWrapsAroundAndIsLimitedInSize) {
  MissingMemory memory;
  memory.add({10 * kPage, 4 * kPage, source(0)});
  memory.add({20 * kPage, 1 * kPage, source(9)});
  EXPECT_EQ(memory.next(0, 2 * kPage).address, 10 * kPage);
  EXPECT_EQ(memory.next(0, 2 * kPage).bytes, 2 * kPage);
  EXPECT_EQ(memory.next(12 * kPage, 8 * kPage).address, 12 * kPage);
  EXPECT_EQ(memory.next(12 * kPage, 8 * kPage).bytes, 2 * kPage);
  EXPECT_EQ(memory.next(15 * kPage, kPage).address, 20 * kPage);
  EXPECT_EQ(memory.next(21 * kPage, kPage).address, 10 * kPage);
}

}  // namespace
}  // namespace ckpt::lazy_pages
