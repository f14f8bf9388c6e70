// SPDX-License-Identifier: Apache-2.0
// Tests of the limit on the bytes that the coordinator stores for a node.
#include "coordinator/fleet/node.h"

#include <gtest/gtest.h>

namespace ckpt::coordinator {
namespace {

wire::JobInstance instance(JobId job, std::size_t reason_bytes = 0) {
  wire::JobInstance instance;
  instance.job = job;
  instance.incarnation = 1;
  instance.reason = std::string(reason_bytes, 'x');
  return instance;
}

TEST(Node, JobUpdatesAreBoundedByNumber) {
  Node node;
  JobId job = 0;
  while (node.update(instance(++job))) ASSERT_LE(job, kMaxNodeInstances);
  EXPECT_EQ(node.instances.size(), kMaxNodeInstances);
  EXPECT_TRUE(node.update(instance(1))) << "one that is known changes";
  EXPECT_EQ(node.update(instance(job + 1)).error().code(), ErrorCode::kProtocol);
}

TEST(Node, JobUpdatesAreBoundedByBytes) {
  constexpr std::size_t kReason = 100'000;
  Node node;
  JobId job = 0;
  while (node.update(instance(++job, kReason))) ASSERT_LE(job, kMaxNodeInstances);
  EXPECT_LE(node.instances.size() * kReason, kMaxNodeBytes);
  EXPECT_GT((node.instances.size() + 1) * (kReason + sizeof(wire::JobInstance)), kMaxNodeBytes);
  // A smaller report frees space.
  ASSERT_TRUE(node.update(instance(1)));
  EXPECT_TRUE(node.update(instance(job, kReason / 2)));
}

TEST(Node, InventoryIsBoundedAndReplacesPreviousInstances) {
  Node node;
  ASSERT_TRUE(node.update(instance(1, 1000)));
  wire::NodeInventory inventory;
  inventory.jobs.push_back(instance(2, 10));
  ASSERT_TRUE(node.update(inventory, 0));
  EXPECT_LT(node.instance_bytes, 1000U);
  inventory.jobs.assign(kMaxNodeInstances + 1, instance(3));
  EXPECT_EQ(node.update(inventory, 0).error().code(), ErrorCode::kProtocol);
  EXPECT_EQ(node.instances.size(), 1U);
  inventory.jobs.clear();
  inventory.labels.assign(kMaxNodeLabels + 1, "a=b");
  EXPECT_FALSE(node.update(inventory, 0));
}

TEST(Node, InventoryIsBoundedByBytes) {
  constexpr std::size_t kReason = 100'000;
  Node node;
  ASSERT_TRUE(node.update(instance(1)));
  wire::NodeInventory inventory;
  inventory.jobs.assign(kMaxNodeBytes / kReason + 1, instance(2, kReason));
  const auto kept = node.update(inventory, 0);
  ASSERT_FALSE(kept);
  EXPECT_EQ(kept.error().code(), ErrorCode::kProtocol);
  EXPECT_EQ(node.instances.front().job, 1U);
}

TEST(Node, ReasonForMissingGpusIsTruncated) {
  Node node;
  wire::NodeInventory inventory;
  inventory.gpu_reason = std::string(2 * kMaxNodeReason, 'x');
  ASSERT_TRUE(node.update(inventory, 0));
  EXPECT_EQ(node.gpu_reason.size(), kMaxNodeReason);
}

TEST(Node, MemoryOfRemovedGpusIsForgotten) {
  Node node;
  for (std::uint32_t index = 0; index < 1000; ++index) {
    wire::NodeInventory inventory;
    inventory.gpus.emplace_back().index = index;
    ASSERT_TRUE(node.update(inventory, 0));
  }
  EXPECT_EQ(node.gpu_memory.size(), 1U);
}

}  // namespace
}  // namespace ckpt::coordinator
