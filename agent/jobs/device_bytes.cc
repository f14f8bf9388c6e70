// SPDX-License-Identifier: Apache-2.0
#include "agent/jobs/device_bytes.h"

#include <algorithm>

#include "agent/jobs/adoption.h"

namespace ckpt::agent {
namespace {

std::uint64_t counted(const InventorySnapshot& snapshot, const wire::RankState& rank) {
  return rank.pid > 0 ? device_bytes_of(snapshot, rank.pid) : 0;
}

}  // namespace

void add_device_bytes(const InventorySnapshot& snapshot, wire::JobInstance& instance) {
  for (wire::RankState& rank : instance.ranks)
    rank.device_bytes = std::max(rank.state_bytes, counted(snapshot, rank));
}

void count_device_bytes(const InventorySnapshot& snapshot, const std::vector<wire::RankState>& then,
                        wire::JobInstance& instance) {
  for (wire::RankState& rank : instance.ranks) {
    rank.device_bytes = counted(snapshot, rank);
    for (const wire::RankState& known : then) {
      if (known.rank == rank.rank) rank.device_bytes = std::max(rank.device_bytes, known.state_bytes);
    }
  }
}

}  // namespace ckpt::agent
