// SPDX-License-Identifier: Apache-2.0
#include "agent/jobs/device_bytes.h"

#include <algorithm>

#include "agent/jobs/adoption.h"

namespace ckpt::agent {
namespace {

std::uint64_t counted(const InventorySnapshot& snapshot, const GpuProcesses& processes) {
  std::uint64_t bytes = 0;
  for (const pid_t pid : processes) bytes += pid > 0 ? device_bytes_of(snapshot, pid) : 0;
  return bytes;
}

bool hold_the_same(const RanksOfJobs& a, const RanksOfJobs& b) {
  const auto same_rank = [](const wire::RankState& one, const wire::RankState& other) {
    return one.state_bytes == other.state_bytes;
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const auto& one, const auto& other) {
    return one.first == other.first && std::equal(one.second.begin(), one.second.end(), other.second.begin(),
                                                  other.second.end(), same_rank);
  });
}

}  // namespace

Task<RanksOfJobs> ask_at_one_moment(MemorySources& sources) {
  constexpr int kMaxAsks = 3;
  co_await sources.describe_jobs(false);
  for (int asked = 1;; ++asked) {
    RanksOfJobs before = sources.ranks();
    co_await sources.ask_driver();
    co_await sources.describe_jobs(true);
    if (asked == kMaxAsks || hold_the_same(before, sources.ranks())) co_return before;
  }
}

void add_device_bytes(const InventorySnapshot& snapshot, const GpuProcesses& processes,
                      wire::JobInstance& instance) {
  for (wire::RankState& rank : instance.ranks)
    rank.device_bytes = std::max(rank.state_bytes, counted(snapshot, processes));
}

void count_device_bytes(const InventorySnapshot& snapshot, const GpuProcesses& processes,
                        const std::vector<wire::RankState>& then, wire::JobInstance& instance) {
  for (wire::RankState& rank : instance.ranks) {
    rank.device_bytes = counted(snapshot, processes);
    for (const wire::RankState& known : then) {
      if (known.rank == rank.rank) rank.device_bytes = std::max(rank.device_bytes, known.state_bytes);
    }
  }
}

}  // namespace ckpt::agent
