// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/placement/gang_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckpt::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

GpuView gang_gpu(const std::string& node, std::uint32_t index) {
  GpuView view;
  view.place = Place(node, index);
  view.model = "model-1";
  view.total_bytes = view.free_bytes = std::uint64_t{8} << 30;
  return view;
}

GangPlan plan_of(const std::vector<GpuView>& gpus, std::size_t ranks) {
  GangShape shape;
  shape.ranks = ranks;
  return place_gang(rank_candidates(gpus, PlacementRequest()), gpus, shape);
}

GangPlan spread_plan(const std::vector<GpuView>& gpus, std::size_t ranks,
                     std::vector<std::string> nodes = {}) {
  GangShape shape;
  shape.ranks = ranks;
  shape.one_node = false;
  shape.nodes = std::move(nodes);
  return place_gang(rank_candidates(gpus, PlacementRequest()), gpus, shape);
}

GangPlan plan_beside(const std::vector<GpuView>& gpus, std::size_t ranks, std::vector<Place> beside) {
  GangShape shape;
  shape.ranks = ranks;
  shape.one_node = false;
  shape.beside = std::move(beside);
  PlacementRequest request;
  std::vector<GpuView> views = gpus;
  for (GpuView& view : views)
    if (std::find(shape.beside.begin(), shape.beside.end(), view.place) != shape.beside.end())
      view.closed = "a rank is there";
  return place_gang(rank_candidates(views, request), views, shape);
}

// Returns the GPUs of the given nodes, each with its number of GPUs.
std::vector<GpuView> gpus_of(const std::vector<std::pair<std::string, std::uint32_t>>& nodes) {
  std::vector<GpuView> gpus;
  for (const auto& [node, count] : nodes)
    for (std::uint32_t gpu = 0; gpu < count; ++gpu) gpus.push_back(gang_gpu(node, gpu));
  return gpus;
}

void link(std::vector<GpuView>& gpus, std::size_t a, std::size_t b, unsigned nvlinks, unsigned ancestor) {
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    PeerView peer;
    peer.gpu = gpus[to].place.gpu;
    peer.nvlinks = nvlinks;
    peer.common_ancestor = ancestor;
    gpus[from].peers.push_back(peer);
  }
}

TEST(GangPlacement, OneRankTakesTheBestCandidateOfAllNodes) {
  std::vector<GpuView> gpus = gpus_of({{"a", 2}, {"b", 3}, {"c", 1}});
  for (GpuView& view : gpus) view.free_bytes -= std::uint64_t{1} << 30;
  EXPECT_THAT(plan_of(gpus, 1).places, ElementsAre(Place("a", 0))) << "all are equal";
  gpus[3].free_bytes += std::uint64_t{1} << 29;
  for (const GangPlan& plan : {plan_of(gpus, 1), spread_plan(gpus, 1)}) {
    EXPECT_THAT(plan.places, ElementsAre(Place("b", 1)));
    EXPECT_EQ(plan.places.front(), plan.candidates.front().place);
  }
}

TEST(GangPlacement, AllRanksArePlacedOnOneNode) {
  const auto plan = plan_of({gang_gpu("a", 0), gang_gpu("b", 0), gang_gpu("b", 1)}, 2);
  EXPECT_THAT(plan.places, ElementsAre(Place("b", 0), Place("b", 1)));
}

TEST(GangPlacement, NodesThatAreTooSmallAreReportedAndNoRankIsPlaced) {
  std::vector<GpuView> gpus{gang_gpu("a", 0), gang_gpu("b", 0), gang_gpu("b", 1)};
  gpus[2].healthy = false;
  gpus[2].health_reason = "Xid 79";
  const auto plan = plan_of(gpus, 2);
  EXPECT_THAT(plan.places, IsEmpty());
  EXPECT_THAT(plan.reason, HasSubstr("No node has 2 GPUs"));
  EXPECT_THAT(plan.reason, HasSubstr("a has 1, b has 1; the others: 1 "));
}

TEST(GangPlacement, NodeNamedTwiceTakesTwoSharesOnSeparateGpus) {
  const auto plan = spread_plan(gpus_of({{"a", 2}, {"b", 3}}), 4, {"b", "a", "b", "b"});
  EXPECT_THAT(plan.places, ElementsAre(Place("b", 0), Place("b", 1), Place("b", 2), Place("a", 0)));
}

TEST(GangPlacement, MovingRankGoesToANodeOfTheRemainingRanks) {
  const auto gpus = gpus_of({{"a", 4}, {"b", 2}, {"c", 4}});
  EXPECT_THAT(plan_beside(gpus, 1, {Place("b", 0)}).places, ElementsAre(Place("b", 1)));
  EXPECT_THAT(plan_beside(gpus, 1, {Place("b", 0), Place("c", 0), Place("c", 1)}).places,
              ElementsAre(Place("c", 2)));
}

TEST(GangPlacement, MovingRankGoesToTheGpuLinkedWithTheRemainingRanks) {
  std::vector<GpuView> gpus = gpus_of({{"a", 4}});
  link(gpus, 0, 3, 4, 30);
  EXPECT_THAT(plan_beside(gpus, 1, {Place("a", 0)}).places, ElementsAre(Place("a", 3)));
}

TEST(GangPlacement, NvlinkDomainOfTheRemainingRanksTakesPrecedenceOverTheirRack) {
  std::vector<GpuView> gpus = gpus_of({{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}});
  gpus[0].rack = gpus[1].rack = "r1";
  gpus[0].fabric = gpus[3].fabric = "cluster/1";
  EXPECT_THAT(plan_beside(gpus, 1, {Place("a", 0)}).places, ElementsAre(Place("d", 0)));
  gpus[3].fabric.clear();
  EXPECT_THAT(plan_beside(gpus, 1, {Place("a", 0)}).places, ElementsAre(Place("b", 0)));
}

TEST(GangPlacement, SeveralMovingRanksGoToTheRackOfTheRemainingRanks) {
  std::vector<GpuView> gpus = gpus_of({{"a", 2}, {"b", 2}, {"c", 2}, {"d", 1}, {"e", 1}});
  for (GpuView& gpu : gpus) gpu.rack = gpu.place.node == "a" || gpu.place.node == "b" ? "r1" : "r2";
  EXPECT_THAT(shares_text(plan_beside(gpus, 3, {Place("e", 0)}).places), "c 2 ranks, d 1 rank");
}

TEST(GangPlacement, ReasonMentionsNoUnsuitableGpusIfThereAreNone) {
  EXPECT_EQ(plan_of({gang_gpu("a", 0)}, 2).reason, "No node has 2 GPUs that can each hold a rank: a has 1");
}

TEST(GangPlacement, NvlinkBeatsASharedBoard) {
  std::vector<GpuView> gpus{gang_gpu("a", 0), gang_gpu("a", 1), gang_gpu("a", 2)};
  link(gpus, 0, 1, 0, 0);
  link(gpus, 0, 2, 4, 30);
  EXPECT_THAT(plan_of(gpus, 2).places, ElementsAre(Place("a", 0), Place("a", 2)));
}

TEST(GangPlacement, NearestBoardIsChosenWithoutNvlink) {
  std::vector<GpuView> gpus{gang_gpu("a", 0), gang_gpu("a", 1), gang_gpu("a", 2)};
  link(gpus, 0, 1, 0, 40);
  link(gpus, 1, 2, 0, 10);
  EXPECT_THAT(plan_of(gpus, 2).places, ElementsAre(Place("a", 1), Place("a", 2)));
}

TEST(GangPlacement, NumaNodeIsUsedIfTheBoardIsUnknown) {
  std::vector<GpuView> gpus = gpus_of({{"a", 4}});
  for (GpuView& gpu : gpus) gpu.numa_node = gpu.place.gpu % 2 == 0 ? 0 : 1;
  gpus[0].free_bytes = gpus[0].free_bytes / 2;  // the score alone would choose GPU 1 and another GPU
  EXPECT_THAT(plan_of(gpus, 2).places, ElementsAre(Place("a", 1), Place("a", 3)));
}

TEST(GangPlacement, RanksAreSpreadEvenlyOverTheNamedNodes) {
  const auto plan = spread_plan(gpus_of({{"a", 4}, {"b", 4}, {"c", 4}}), 3, {"c", "a"});
  EXPECT_THAT(plan.places, ElementsAre(Place("c", 0), Place("c", 1), Place("a", 0)));
  EXPECT_EQ(shares_text(plan.places), "c 2 ranks, a 1 rank");
}

TEST(GangPlacement, NamedNodeThatIsTooSmallIsReportedAsTheReason) {
  const auto plan = spread_plan(gpus_of({{"a", 4}, {"b", 1}}), 4, {"a", "b"});
  EXPECT_THAT(plan.places, IsEmpty());
  EXPECT_EQ(plan.reason, "b must hold 2 ranks, but only 1 of its GPUs can hold one");
}

TEST(GangPlacement, OneNodeIsChosenIfOneNodeHasEnoughGpus) {
  const auto plan = spread_plan(gpus_of({{"a", 2}, {"b", 3}, {"c", 2}}), 3);
  EXPECT_EQ(shares_text(plan.places), "b 3 ranks");
}

TEST(GangPlacement, FewestNodesAreChosenAndTheRemainderGoesToTheSmallestNode) {
  const auto plan = spread_plan(gpus_of({{"a", 2}, {"b", 4}, {"c", 1}, {"d", 3}}), 5);
  EXPECT_EQ(shares_text(plan.places), "b 4 ranks, c 1 rank");
}

TEST(GangPlacement, RackThatHasEnoughBeatsFewerNodes) {
  std::vector<GpuView> gpus = gpus_of({{"a", 2}, {"b", 2}, {"c", 2}, {"d", 1}, {"e", 1}});
  for (GpuView& gpu : gpus) gpu.rack = gpu.place.node == "a" ? "1" : gpu.place.node == "b" ? "3" : "2";
  EXPECT_EQ(shares_text(spread_plan(gpus, 4).places), "c 2 ranks, d 1 rank, e 1 rank");
  EXPECT_EQ(shares_text(spread_plan(gpus, 5).places), "a 2 ranks, b 2 ranks, e 1 rank");
}

TEST(GangPlacement, TooFewGpusInTotalIsReportedAsTheReason) {
  EXPECT_EQ(spread_plan(gpus_of({{"a", 2}, {"b", 1}}), 4).reason,
            "Fewer than 4 GPUs can each hold a rank: a has 2, b has 1");
}

}  // namespace
}  // namespace ckpt::coordinator
