// SPDX-License-Identifier: Apache-2.0
// How much of a GPU's memory a job's ranks hold. Pure functions.
#pragma once

#include <vector>

#include "agent/gpus/inventory.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::agent {

// As far as is known now: what the driver counts, contexts and what nobody named included, at least what the
// ranks say themselves.
void add_device_bytes(const InventorySnapshot& snapshot, wire::JobInstance& instance);
// As of when the driver was asked: what a job has taken since is not missing in that answer's free memory
// either, and placement adds the two up. `then`: the ranks as they were; where the driver does not count,
// their word holds.
void count_device_bytes(const InventorySnapshot& snapshot, const std::vector<wire::RankState>& then,
                        wire::JobInstance& instance);

}  // namespace ckpt::agent
