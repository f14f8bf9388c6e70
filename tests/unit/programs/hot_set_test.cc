// SPDX-License-Identifier: Apache-2.0
#include "tests/programs/hotset/hot_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace ckpt::examples {
namespace {

HotSetOptions options_of(Pattern pattern, double drift = 0) {
  return {.pattern = pattern, .pages = 4096, .hot = 0.1, .drift = drift, .append_pages = 100, .seed = 7};
}

std::vector<std::uint32_t> written(const HotSet& set, std::uint64_t pages) {
  if (!set.is_range()) return set.list();
  std::vector<std::uint32_t> list;
  for (std::uint64_t i = 0; i < set.count(); i++)
    list.push_back(static_cast<std::uint32_t>((set.first() + i) % pages));
  return list;
}

// Checks that the writes of each step give the content of versions(), also when the content is computed from
// the last step alone.
void expect_versions_follow_from_the_step(const HotSetOptions& options) {
  HotSet set(options);
  std::vector<std::uint32_t> versions(options.pages);
  for (std::uint64_t step = 1; step <= 120; step++) {
    set.advance(step);
    for (const std::uint32_t page : written(set, options.pages)) versions[page] = set.version_of(step);
    ASSERT_EQ(set.versions(), versions) << "step " << step;
    if (step % 40 != 0) continue;
    HotSet late(options);
    late.catch_up(step);
    ASSERT_EQ(late.versions(), versions) << "caught up with step " << step;
    ASSERT_EQ(late.list(), set.list());
  }
}

TEST(HotSet, VersionsAreDerivedFromTheStep) {
  for (const Pattern pattern : {Pattern::kStride, Pattern::kRandom, Pattern::kAppend, Pattern::kFlip}) {
    expect_versions_follow_from_the_step(options_of(pattern));
  }
}

TEST(HotSet, VersionsAreDerivedFromTheStepWithDrift) {
  for (const Pattern pattern : {Pattern::kStride, Pattern::kRandom, Pattern::kFlip}) {
    expect_versions_follow_from_the_step(options_of(pattern, 0.1));
    expect_versions_follow_from_the_step(options_of(pattern, 0.001));
  }
}

TEST(HotSet, HotSetContainsItsShareOfPagesOnce) {
  for (const Pattern pattern : {Pattern::kStride, Pattern::kRandom, Pattern::kFlip}) {
    for (const double hot : {0.0001, 0.02, 0.5, 1.0}) {
      HotSetOptions options = options_of(pattern, hot < 1 ? 0.2 : 0);
      options.hot = hot;
      HotSet set(options);
      const auto expected = std::max<std::size_t>(1, static_cast<std::size_t>(hot * 4096 + 0.5));
      for (std::uint64_t step = 1; step <= 10; step++) {
        set.advance(step);
        const std::set<std::uint32_t> once(set.list().begin(), set.list().end());
        ASSERT_EQ(once.size(), expected);
        ASSERT_LT(*once.rbegin(), 4096u);
      }
    }
  }
}

TEST(HotSet, RunsAreAtMost64PagesUnlessAdjacent) {
  HotSetOptions options = options_of(Pattern::kRandom);
  options.pages = 1 << 20;
  options.hot = 0.01;
  const HotSet set(options);
  std::size_t runs = 1;
  for (std::size_t i = 1; i < set.list().size(); i++) runs += set.list()[i] != set.list()[i - 1] + 1;
  const double mean = static_cast<double>(set.list().size()) / static_cast<double>(runs);
  EXPECT_GT(mean, 20);
  EXPECT_LT(mean, 50);
}

TEST(HotSet, DriftReplacesItsShareOfPages) {
  HotSet set(options_of(Pattern::kRandom, 0.1));
  set.advance(1);
  const std::set<std::uint32_t> before(set.list().begin(), set.list().end());
  EXPECT_TRUE(set.advance(2));
  std::size_t kept = 0;
  for (const std::uint32_t page : set.list()) kept += before.count(page);
  EXPECT_NEAR(static_cast<double>(before.size() - kept), 0.1 * static_cast<double>(before.size()), 3);
}

TEST(HotSet, EverySecondFlipRestoresTheOriginalVersion) {
  const HotSet set(options_of(Pattern::kFlip));
  EXPECT_EQ(set.version_of(1), 1u);
  EXPECT_EQ(set.version_of(2), 0u);
  EXPECT_EQ(set.version_of(3), 3u);
}

TEST(HotSet, AnotherSeedSelectsOtherPages) {
  HotSetOptions other = options_of(Pattern::kRandom);
  other.seed = 8;
  EXPECT_NE(HotSet(options_of(Pattern::kRandom)).list(), HotSet(other).list());
}

}  // namespace
}  // namespace ckpt::examples
