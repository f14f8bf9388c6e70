// SPDX-License-Identifier: Apache-2.0
#include "coordinator/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckpt::coordinator {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

GpuView gpu(const std::string& node, std::uint32_t index) {
  GpuView view;
  view.place = Place(node, index);
  view.model = "model-1";
  view.total_bytes = 8 * kGiB;
  view.free_bytes = 8 * kGiB;
  return view;
}

TEST(Placement, NeverTheSourceItself) {
  PlacementRequest request;
  request.not_here = Place("a", 0);
  const auto candidates = rank_candidates({gpu("a", 0), gpu("a", 1)}, request);
  EXPECT_EQ(candidates.at(0).place, Place("a", 1));
  EXPECT_TRUE(candidates.at(0).suitable);
  EXPECT_FALSE(candidates.at(1).suitable);
}

TEST(Placement, NeedsMemoryForStateAndMargin) {
  PlacementRequest request;
  request.memory_bytes = 3 * kGiB;
  request.margin_bytes = kGiB;
  GpuView exact = gpu("a", 0);
  exact.free_bytes = 4 * kGiB;
  GpuView short_of = gpu("b", 0);
  short_of.free_bytes = 4 * kGiB - 1;
  const auto candidates = rank_candidates({short_of, exact}, request);
  EXPECT_EQ(candidates.at(0).place, Place("a", 0));
  EXPECT_TRUE(candidates.at(0).suitable);
  EXPECT_FALSE(candidates.at(1).suitable);
  EXPECT_THAT(candidates.at(1).reasons, Contains(HasSubstr("needed are 4.00 GiB")));
}

TEST(Placement, CountsWhatIsPromised) {
  PlacementRequest request;
  request.memory_bytes = 3 * kGiB;
  GpuView promised = gpu("a", 0);
  promised.free_bytes = 4 * kGiB;
  promised.promised_bytes = 2 * kGiB;
  EXPECT_FALSE(rank_candidates({promised}, request).at(0).suitable);
  promised.promised_bytes = kGiB;
  EXPECT_TRUE(rank_candidates({promised}, request).at(0).suitable);
  promised.promised_bytes = 100 * kGiB;
  EXPECT_FALSE(rank_candidates({promised}, request).at(0).suitable);
}

TEST(Placement, RefusesSickAndAbsent) {
  GpuView sick = gpu("a", 0);
  sick.healthy = false;
  sick.health_reason = "Xid 79";
  GpuView away = gpu("b", 0);
  away.connected = false;
  const auto candidates = rank_candidates({sick, away}, PlacementRequest());
  EXPECT_FALSE(candidates.at(0).suitable);
  EXPECT_FALSE(candidates.at(1).suitable);
  const std::string why = why_none(candidates, PlacementRequest());
  EXPECT_THAT(why, HasSubstr("a:0: unhealthy: Xid 79"));
  EXPECT_THAT(why, HasSubstr("b:0: node is not connected"));
}

TEST(Placement, SameModelOnlyWhereItMatters) {
  GpuView other = gpu("a", 0);
  other.model = "model-2";
  PlacementRequest request;
  request.preferred_model = "model-1";
  EXPECT_TRUE(rank_candidates({other}, request).at(0).suitable);
  request.same_model = true;
  EXPECT_FALSE(rank_candidates({other}, request).at(0).suitable);
}

TEST(Placement, SpreadsOverGpusThenNodes) {
  GpuView busy = gpu("a", 0);
  busy.jobs = 1;
  busy.node_jobs = 1;
  GpuView sibling = gpu("a", 1);
  sibling.node_jobs = 1;
  GpuView empty = gpu("b", 0);
  empty.free_bytes = 7 * kGiB;
  const auto candidates = rank_candidates({busy, sibling, empty}, PlacementRequest());
  EXPECT_EQ(candidates.at(0).place, Place("b", 0));
  EXPECT_EQ(candidates.at(1).place, Place("a", 1));
  EXPECT_EQ(candidates.at(2).place, Place("a", 0));
}

TEST(Placement, ExplainsOnlyWhatWasAskedFor) {
  PlacementRequest request;
  request.node = "b";
  request.gpu = 1;
  request.memory_bytes = 100 * kGiB;
  const auto candidates = rank_candidates({gpu("a", 0), gpu("b", 0), gpu("b", 1)}, request);
  const std::string why = why_none(candidates, request);
  EXPECT_THAT(why, HasSubstr("b:1: 8.00 GiB free"));
  EXPECT_THAT(why, ::testing::Not(HasSubstr("a:0")));
  EXPECT_THAT(why, ::testing::Not(HasSubstr("b:0")));
  EXPECT_EQ(why_none({}, PlacementRequest()), "there is no GPU");
}

}  // namespace
}  // namespace ckpt::coordinator
