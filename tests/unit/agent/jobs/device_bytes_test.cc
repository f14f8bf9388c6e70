// SPDX-License-Identifier: Apache-2.0
#include "agent/jobs/device_bytes.h"

#include <gtest/gtest.h>

namespace ckpt::agent {
namespace {

InventorySnapshot counted(std::int32_t pid, std::uint64_t bytes) {
  InventorySnapshot snapshot;
  snapshot.gpus.emplace_back().processes.emplace_back(pid, bytes);
  return snapshot;
}

wire::JobInstance holding(std::uint64_t state_bytes) {
  wire::JobInstance instance;
  wire::RankState& rank = instance.ranks.emplace_back();
  rank.pid = 6;  // process 6 has started the process that uses the GPU
  rank.state_bytes = state_bytes;
  return instance;
}

TEST(DeviceBytes, LargerOfTheDriverAndRankSizesIsShown) {
  wire::JobInstance instance = holding(100);
  add_device_bytes(counted(7, 130), {7}, instance);
  EXPECT_EQ(instance.ranks[0].device_bytes, 130U);
  add_device_bytes(counted(7, 30), {7}, instance);
  EXPECT_EQ(instance.ranks[0].device_bytes, 100U);
}

TEST(DeviceBytes, MemoryAllocatedSinceTheDriverCountIsNotCounted) {
  const wire::JobInstance then = holding(20);
  wire::JobInstance now = holding(100);
  count_device_bytes(counted(7, 30), {7}, then.ranks, now);
  EXPECT_EQ(now.ranks[0].device_bytes, 30U);
  count_device_bytes(counted(8, 500), {7}, then.ranks, now);  // a driver that does not count the process
  EXPECT_EQ(now.ranks[0].device_bytes, 20U);
  count_device_bytes(counted(8, 500), {7}, {}, now);  // the rank had not been started
  EXPECT_EQ(now.ranks[0].device_bytes, 0U);
}

TEST(DeviceBytes, EachProcessOfTheJobIsCounted) {
  InventorySnapshot snapshot = counted(7, 130);
  snapshot.gpus[0].processes.emplace_back(9, 40);
  snapshot.gpus[0].processes.emplace_back(11, 1000);  // a process of another job
  wire::JobInstance instance = holding(100);
  add_device_bytes(snapshot, {7, 9}, instance);
  EXPECT_EQ(instance.ranks[0].device_bytes, 170U);
}

// Memory that the driver counts under no known process belongs to no job.
TEST(DeviceBytes, ARankWithoutAProcessIsNotCounted) {
  wire::JobInstance ended = holding(0);
  add_device_bytes(counted(0, 500), {0}, ended);
  EXPECT_EQ(ended.ranks[0].device_bytes, 0U);
}

// A job that allocates memory while the driver is queried: `times` times, one byte each.
struct BusyNode : MemorySources {
  explicit BusyNode(int times) : takes(times) {}
  Task<> describe_jobs(bool /*again*/) override {
    reported = held;
    co_return;
  }
  Task<> ask_driver() override {
    if (takes-- > 0) ++held;
    missing = held;
    ++asks;
    co_return;
  }
  [[nodiscard]] RanksOfJobs ranks() const override { return {{"job", holding(reported).ranks}}; }
  // Returns the bytes of the job in the ranks that belong to the driver's answer.
  std::uint64_t ask() {
    asio::io_context loop;
    std::uint64_t bytes = 0;
    control::spawn(loop.get_executor(), "ask", [](MemorySources& asked, std::uint64_t* out) -> Task<> {
      const RanksOfJobs ranks = co_await ask_at_one_moment(asked);
      *out = ranks.at("job").front().state_bytes;
    }(*this, &bytes));
    loop.run();
    return bytes;
  }
  int takes;
  int asks = 0;
  std::uint64_t held = 10;
  std::uint64_t reported = 0;
  std::uint64_t missing = 0;  // the bytes that are missing in the driver's last answer
};

TEST(DeviceBytes, DriverIsQueriedAgainWhileAJobAllocatesMemory) {
  for (const int times : {0, 1, 2}) {
    BusyNode node(times);
    EXPECT_EQ(node.ask(), node.missing) << times;
    EXPECT_EQ(node.asks, times + 1);
  }
}

TEST(DeviceBytes, DriverQueriesAreLimited) {
  BusyNode node(1000);
  EXPECT_LT(node.ask(), node.missing);
  EXPECT_EQ(node.asks, 3);
}

}  // namespace
}  // namespace ckpt::agent
