// SPDX-License-Identifier: Apache-2.0
#include "coordinator/placement/gang_placement.h"

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
  return place_gang(rank_candidates(gpus, PlacementRequest()), gpus, ranks);
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

TEST(GangPlacement, AllRanksAreOnOneNode) {
  const auto plan = plan_of({gang_gpu("a", 0), gang_gpu("b", 0), gang_gpu("b", 1)}, 2);
  EXPECT_THAT(plan.places, ElementsAre(Place("b", 0), Place("b", 1)));
}

TEST(GangPlacement, NodesThatAreTooSmallAreNamedAndNothingIsPlaced) {
  std::vector<GpuView> gpus{gang_gpu("a", 0), gang_gpu("b", 0), gang_gpu("b", 1)};
  gpus[2].healthy = false;
  gpus[2].health_reason = "Xid 79";
  const auto plan = plan_of(gpus, 2);
  EXPECT_THAT(plan.places, IsEmpty());
  EXPECT_THAT(plan.reason, HasSubstr("No node has 2 GPUs"));
  EXPECT_THAT(plan.reason, HasSubstr("a has 1, b has 1; of the others 1 "));
}

TEST(GangPlacement, NodeWithoutUnsuitableGpusHasNoOthers) {
  EXPECT_EQ(plan_of({gang_gpu("a", 0)}, 2).reason, "No node has 2 GPUs that can each take a rank: a has 1");
}

TEST(GangPlacement, NvlinkBeatsOneBoard) {
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

}  // namespace
}  // namespace ckpt::coordinator
