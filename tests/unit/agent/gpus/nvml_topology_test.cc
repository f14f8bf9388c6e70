// SPDX-License-Identifier: Apache-2.0
// Tests of the topology that the agent derives from a driver's answers. The software driver's NVML has four
// devices whose connections a file describes.
#include "agent/gpus/nvml_topology.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "agent/gpus/nvml.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent {
namespace {

class NvmlTopologyTest : public ::testing::Test {
 protected:
  std::vector<GpuFacts> read(const std::string& topology) {
    const std::string folder = std::getenv("CUDASIM_DIR");
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/topology") << topology;
    auto nvml = Nvml::create("libnvidia-ml.so.1");
    EXPECT_TRUE(nvml) << nvml.error().to_string();
    auto gpus = (*nvml)->read_gpus();
    EXPECT_TRUE(gpus);
    return *std::move(gpus);
  }
  static const GpuPeerFacts& peer(const GpuFacts& gpu, std::uint32_t index) {
    for (const GpuPeerFacts& candidate : gpu.topology.peers) {
      if (candidate.index == index) return candidate;
    }
    ADD_FAILURE() << "GPU " << gpu.index << " has no peer " << index;
    static const GpuPeerFacts kNone;
    return kNone;
  }
};

TEST_F(NvmlTopologyTest, GpusWithoutATopologyDescriptionShareABridge) {
  const auto gpus = read("");
  ASSERT_EQ(gpus.size(), 4U);
  for (const GpuFacts& gpu : gpus) {
    EXPECT_EQ(gpu.topology.numa_node, 0);
    EXPECT_EQ(gpu.topology.fabric, "");
    EXPECT_FALSE(gpu.topology.mig || gpu.topology.remap_pending || gpu.topology.remap_failed);
    ASSERT_EQ(gpu.topology.peers.size(), 3U);
    for (const GpuPeerFacts& other : gpu.topology.peers) {
      EXPECT_EQ(other.nvlinks, 0U);
      EXPECT_EQ(other.common_ancestor, 30U);
    }
  }
}

TEST_F(NvmlTopologyTest, LinksAncestorsAndNumaNodesAreRead) {
  const auto gpus =
      read("numa 2 1\nnuma 3 1\nnvlink 0 1 4\nancestor 1 0 10  # one switch\nancestor 0 2 50\n");
  EXPECT_EQ(gpus.at(0).topology.numa_node, 0);
  EXPECT_EQ(gpus.at(3).topology.numa_node, 1);
  EXPECT_EQ(peer(gpus[0], 1).nvlinks, 4U);
  EXPECT_EQ(peer(gpus[1], 0).nvlinks, 4U);
  EXPECT_EQ(peer(gpus[0], 2).nvlinks, 0U);
  EXPECT_EQ(peer(gpus[0], 1).common_ancestor, 10U);
  EXPECT_EQ(peer(gpus[2], 0).common_ancestor, 50U);
}

TEST_F(NvmlTopologyTest, GpusOfTheSameSwitchAreConnected) {
  const auto gpus = read("switch 0 18\nswitch 2 6\n");
  EXPECT_EQ(peer(gpus.at(0), 2).nvlinks, 6U);
  EXPECT_EQ(peer(gpus.at(2), 0).nvlinks, 6U);
  EXPECT_EQ(peer(gpus.at(0), 1).nvlinks, 0U);
}

TEST_F(NvmlTopologyTest, FabricAndMigAreRead) {
  const auto gpus = read("fabric 1 000102030405060708090a0b0c0d0e0f 7\nmig 2\n");
  EXPECT_EQ(gpus.at(1).topology.fabric, "000102030405060708090a0b0c0d0e0f/7");
  EXPECT_EQ(gpus.at(0).topology.fabric, "");
  EXPECT_TRUE(gpus.at(2).topology.mig);
}

TEST(NumaNode, NumaNodeIsReadFromSysfsIfTheDriverDoesNotReportTheNode) {
  const TemporaryFolder root;
  std::filesystem::create_directories(root.path() + "/0001:3b:00.0");
  std::ofstream(root.path() + "/0001:3b:00.0/numa_node") << "1\n";
  EXPECT_EQ(numa_node_of("00000001:3B:00.0", root.path()), 1);
  EXPECT_EQ(numa_node_of("00000000:3B:00.0", root.path()), -1);
  EXPECT_EQ(numa_node_of("../../etc/passwd", root.path()), -1);
  EXPECT_EQ(numa_node_of("", root.path()), -1);
  std::ofstream(root.path() + "/0001:3b:00.0/numa_node") << "-1\n";
  EXPECT_EQ(numa_node_of("00000001:3B:00.0", root.path()), -1);
}

}  // namespace
}  // namespace ckpt::agent
