// SPDX-License-Identifier: Apache-2.0
// Tests of properties of the placement that are valid for any GPUs and any request.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "coordinator/policies/placement/placement.h"

namespace ckpt::coordinator {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

class PlacementProperties : public ::testing::Test {
 protected:
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  bool one_in(unsigned n) { return below(n) == 0; }

  GpuView random_gpu(std::size_t number) {
    GpuView gpu;
    gpu.place = Place("node-" + std::string(1, static_cast<char>('a' + number / 3)), number % 3);
    gpu.connected = !one_in(8);
    gpu.healthy = !one_in(8);
    if (one_in(8)) gpu.closed = "cordoned";
    gpu.model = one_in(3) ? "model-2" : "model-1";
    gpu.driver = one_in(4) ? "" : one_in(3) ? "575.1" : "580.2";
    gpu.total_bytes = (1 + below(8)) * kGiB;
    gpu.free_bytes = below(gpu.total_bytes + 1);
    gpu.promised_bytes = one_in(2) ? 0 : below(4 * kGiB);
    gpu.jobs = static_cast<unsigned>(below(3));
    gpu.node_jobs = gpu.jobs + static_cast<unsigned>(below(3));
    gpu.node_migrations = static_cast<unsigned>(below(3));
    gpu.moves_processes = !one_in(4);
    gpu.mig = one_in(10);
    gpu.remap_pending = one_in(10);
    gpu.remap_failed = one_in(10);
    gpu.recovery_action = one_in(10) ? 1 : 0;
    gpu.rack = one_in(2) ? "" : "r" + std::to_string(below(2));
    gpu.numa_node = static_cast<std::int32_t>(below(3)) - 1;
    gpu.fabric = one_in(3) ? "f/1" : "";
    for (std::uint32_t other = 0; other < 3; ++other) {
      PeerView peer;
      peer.gpu = other;
      peer.nvlinks = static_cast<unsigned>(below(3));
      peer.common_ancestor = static_cast<unsigned>(below(6) * 10);
      if (other != gpu.place.gpu) gpu.peers.push_back(peer);
    }
    return gpu;
  }
  std::vector<GpuView> random_gpus() {
    std::vector<GpuView> gpus;
    for (std::size_t i = 0, count = 1 + below(8); i < count; ++i) gpus.push_back(random_gpu(i));
    return gpus;
  }
  PlacementRequest random_request(const std::vector<GpuView>& gpus) {
    PlacementRequest request;
    request.memory_bytes = below(6 * kGiB);
    request.margin_bytes = below(kGiB);
    const GpuView& source = gpus[below(gpus.size())];
    if (!one_in(3)) {
      request.not_here = source.place;
      request.near = {source.place};
      request.preferred_model = source.model;
      request.driver = source.driver;
      request.same_model = request.host_process = one_in(2);
    }
    if (one_in(4)) request.node = gpus[below(gpus.size())].place.node;
    return request;
  }

  std::mt19937_64 random_{17};
};

TEST_F(PlacementProperties, SuitableGpusPrecedeUnsuitableGpus) {
  for (int round = 0; round < 2000; ++round) {
    const auto gpus = random_gpus();
    const PlacementRequest request = random_request(gpus);
    const auto candidates = rank_candidates(gpus, request);
    ASSERT_EQ(candidates.size(), gpus.size());
    bool suitable = true;
    for (const Candidate& candidate : candidates) {
      ASSERT_LE(candidate.suitable, suitable);
      suitable = candidate.suitable;
      ASSERT_FALSE(candidate.reasons.empty());
      const auto gpu = std::find_if(gpus.begin(), gpus.end(),
                                    [&](const GpuView& view) { return view.place == candidate.place; });
      ASSERT_EQ(candidate.suitable, objections(*gpu, request).empty());
      if (!candidate.suitable) continue;
      ASSERT_FALSE(candidate.passing);
      // The expected result is computed without the filters' own code.
      ASSERT_TRUE(gpu->connected && gpu->healthy && gpu->closed.empty() && !gpu->mig && !gpu->remap_pending &&
                  !gpu->remap_failed && gpu->recovery_action == 0);
      ASSERT_LE(
          request.memory_bytes + request.margin_bytes + gpu->promised_bytes,
          gpu->free_bytes + (request.memory_bytes + request.margin_bytes == 0 ? gpu->promised_bytes : 0));
      ASSERT_TRUE(!request.node || gpu->place.node == *request.node);
      ASSERT_NE(request.not_here, gpu->place);
      ASSERT_TRUE(!request.same_model || gpu->model == request.preferred_model);
    }
  }
}

std::size_t rank_of(const std::vector<Candidate>& candidates, const Place& place) {
  const auto at = std::find_if(candidates.begin(), candidates.end(),
                               [&](const Candidate& candidate) { return candidate.place == place; });
  return static_cast<std::size_t>(at - candidates.begin());
}

TEST_F(PlacementProperties, MoreMemoryNeverLowersTheRankOfAGpu) {
  for (int round = 0; round < 2000; ++round) {
    auto gpus = random_gpus();
    const PlacementRequest request = random_request(gpus);
    const auto before = rank_candidates(gpus, request);
    GpuView& grown = gpus[below(gpus.size())];
    const std::uint64_t more = below(4 * kGiB);
    grown.total_bytes += more;
    grown.free_bytes += more;
    const auto after = rank_candidates(gpus, request);
    const auto rank = [&](const std::vector<Candidate>& list) { return rank_of(list, grown.place); };
    ASSERT_LE(rank(after), rank(before)) << round;
    ASSERT_GE(after[rank(after)].suitable, before[rank(before)].suitable) << round;
  }
}

TEST_F(PlacementProperties, RankingIsIndependentOfTheInputOrder) {
  for (int round = 0; round < 1000; ++round) {
    auto gpus = random_gpus();
    const PlacementRequest request = random_request(gpus);
    const auto one = rank_candidates(gpus, request);
    std::shuffle(gpus.begin(), gpus.end(), random_);
    const auto two = rank_candidates(gpus, request);
    for (std::size_t i = 0; i < one.size(); ++i) {
      ASSERT_EQ(one[i].place, two[i].place) << round;
      ASSERT_EQ(one[i].reasons, two[i].reasons) << round;
    }
  }
}

}  // namespace
}  // namespace ckpt::coordinator
