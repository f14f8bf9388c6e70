// SPDX-License-Identifier: Apache-2.0
// The parts of an agent that snapshots and restores use. Threads: the event loop, but `pool`, on which they
// look at vaults; the context outlives every session.
#pragma once

#include <functional>
#include <string>

#include "agent/migration/modes/migration_context.h"
#include "agent/snapshots/vault_access.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/protocol/wire/mover_messages.h"

namespace ckpt::agent::protect {

struct ProtectContext {
  MigrationContext& base;
  asio::thread_pool& pool;
  // As NVML names the GPU; kNotFound if the node has no such GPU.
  std::function<Result<std::string>(std::uint32_t gpu)> model_of;
  // Best effort, to the coordinator.
  std::function<void(const wire::SnapshotReport&)> report;
};

// The order for a session on a mover that no migration has, with fresh keys.
Result<mover::OpenSession> session_order(mover::Purpose purpose, wire::Side side,
                                         wire::Incarnation incarnation);

}  // namespace ckpt::agent::protect
