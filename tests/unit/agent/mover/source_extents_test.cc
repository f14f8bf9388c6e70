// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/migration/source_extents.h"

#include <gtest/gtest.h>

#include "libckpt/include/ckpt/ckpt.h"

namespace ckpt::mover {
namespace {

constexpr std::uint64_t kChunk = 64 << 10;

wire::TensorInfo tensor(const std::string& name, std::uint64_t region, std::uint64_t offset = 0) {
  wire::TensorInfo info;
  info.name = name;
  info.region = region;
  info.offset = offset;
  info.bytes = 4096;
  info.dtype = CKPT_F32;
  info.kind = CKPT_PARAMETER;
  info.shape = {1024};
  return info;
}

struct SourceExtentsTest : testing::Test {
  using Names = std::vector<std::string>;

  std::optional<image::Plan> plan(bool at_last = false) {
    auto made = extents.next_plan(regions, kChunk, at_last, planned);
    EXPECT_TRUE(made) << made.error().to_string();
    return made ? *made : std::nullopt;
  }
  // Returns the names of the tensors in the next plan; "no plan" if there is none.
  std::vector<std::string> next(bool at_last = false) {
    const auto made = plan(at_last);
    return made ? names(made->tensors) : Names{"no plan"};
  }
  static std::vector<std::string> names(const std::vector<wire::TensorInfo>& tensors) {
    std::vector<std::string> out;
    for (const wire::TensorInfo& info : tensors) out.push_back(info.name);
    return out;
  }

  SourceExtents::Regions regions{{1, {}}, {2, {}}};
  std::vector<wire::TensorInfo> planned;
  SourceExtents extents;
};

TEST_F(SourceExtentsTest, OnlyTheFirstPlanMayBeEmpty) {
  const auto first = plan();
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->extents.empty());
  EXPECT_EQ(first->chunk_bytes, kChunk);
  EXPECT_FALSE(plan());
  EXPECT_FALSE(plan(true));
}

TEST_F(SourceExtentsTest, EachPlanContainsTheTensorsNamedSinceThePreviousPlan) {
  extents.name({tensor("a", 1), tensor("b", 2)});
  const auto first = plan();
  ASSERT_TRUE(first);
  EXPECT_EQ(names(first->tensors), (Names{"a", "b"}));
  ASSERT_EQ(first->extents.size(), 2U);
  EXPECT_FALSE(plan());
  extents.name({tensor("c", 1, 8192)});
  const auto second = plan();
  ASSERT_TRUE(second);
  EXPECT_EQ(names(second->tensors), Names{"c"});
  ASSERT_EQ(second->extents.size(), 1U);
  EXPECT_EQ(second->extents.front().id, first->extents.back().id + 1);
  EXPECT_EQ(names(planned), (Names{"a", "b", "c"}));
  EXPECT_EQ(extents.tensors_sent(), 3U);
}

TEST_F(SourceExtentsTest, TensorInMemoryThatCannotBeExportedIsInTheFirstPlan) {
  extents.name({tensor("plain", wire::kNoRegion), tensor("a", 1)});
  EXPECT_EQ(next(), (Names{"plain", "a"}));
  EXPECT_FALSE(plan(true));
}

TEST_F(SourceExtentsTest, TensorWithoutARegionIsDeferredUntilTheLastPlan) {
  extents.name({tensor("early", 3), tensor("a", 1)});
  EXPECT_EQ(next(), Names{"a"});
  EXPECT_FALSE(plan());
  regions[3];
  EXPECT_EQ(next(), Names{"early"});
  extents.name({tensor("never", 4)});
  EXPECT_FALSE(plan());
  EXPECT_EQ(next(true), Names{"never"});
}

TEST_F(SourceExtentsTest, TensorDroppedBeforeItsPlanIsInNoPlan) {
  plan();
  extents.name({tensor("a", 1), tensor("b", 2), tensor("kept", 2, 8192)});
  EXPECT_TRUE(extents.drop_tensors({"b", "unknown"}, planned).empty());
  EXPECT_TRUE(extents.drop_region(1).empty());
  EXPECT_EQ(next(), Names{"kept"});
}

}  // namespace
}  // namespace ckpt::mover
