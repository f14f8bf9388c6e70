// SPDX-License-Identifier: Apache-2.0
// The second method to give a paused rank its memory on a GPU (docs/design.md §13). The rank creates its own
// memory. The GPU's mover copies a set of the keeper into that memory and compares the content, batch by
// batch, with the largest regions first. After each batch the set contains the new memory in place of the old
// memory. Therefore the set is always complete, at most one region exists twice, and another agent may start
// again.
// Threads: the event loop. Ownership: descriptors are held for one batch only. Errors: those of the keeper,
// the rank and the mover. The rank's memory is incomplete after an error, and release() or another attempt
// repairs it.
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
  Milliseconds timeout{60000};      // time limit of each step
};

// Fills memory for a rank whose memory is released. Afterwards Map kMade completes the rank's part.
Task<Result<void>> fill_memory(asio::any_io_executor executor, FillOrder order);

}  // namespace ckpt::agent
