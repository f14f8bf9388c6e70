// SPDX-License-Identifier: Apache-2.0
// The second method to give a paused rank its memory on a GPU (docs/design.md §13). The rank makes memory of
// its own. The GPU's mover copies a set of the keeper into it and compares, batch by batch, the largest
// regions first. After each batch the set has the new memory in place of the old. So it is always whole,
// there is at most one region twice, and another agent may begin it again.
// Threads: the event loop. Ownership: descriptors are held for a batch only. Errors: the keeper's, the
// rank's, the mover's; the rank's memory is incomplete then, and release() or another attempt repairs it.
#pragma once

#include <memory>

#include "agent/jobs/keeper_link.h"
#include "agent/mover_client/mover_process.h"

namespace ckpt::agent {

struct FillOrder {
  FillOrder(std::shared_ptr<KeeperLink> its_keeper, std::shared_ptr<MoverProcess> its_mover)
      : keeper(std::move(its_keeper)), mover(std::move(its_mover)) {}
  std::shared_ptr<KeeperLink> keeper;
  std::shared_ptr<MoverProcess> mover;  // the mover of the rank's GPU
  local::MemorySet set = local::MemorySet::kArrived;
  wire::MigrationId migration = 0;  // the migration of the set kArrived, else 0
  Milliseconds timeout{60000};      // limit of each step
};

// Fills memory for a rank whose memory is released. After it Map kMade ends the rank's part.
Task<Result<void>> fill_memory(asio::any_io_executor executor, FillOrder order);

}  // namespace ckpt::agent
