// SPDX-License-Identifier: Apache-2.0
// How much of a GPU's memory a job's ranks hold. Pure functions.
#pragma once

#include <vector>

#include "agent/gpus/inventory.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::agent {

// As far as is known now: the driver's count, which includes contexts and unnamed allocations, and at least
// the ranks' own sum.
void add_device_bytes(const InventorySnapshot& snapshot, wire::JobInstance& instance);
// As of the query to the driver: memory that a job has taken since is not missing in that answer's free
// memory either, and placement adds the two up. `then`: the ranks at that time; where the driver does not
// count, their own sums are used.
void count_device_bytes(const InventorySnapshot& snapshot, const std::vector<wire::RankState>& then,
                        wire::JobInstance& instance);

}  // namespace ckpt::agent
