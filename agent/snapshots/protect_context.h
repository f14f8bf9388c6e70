// SPDX-License-Identifier: Apache-2.0
// The parts of an agent that snapshots and restores use.
// Threads: the event loop. Snapshots and restores read checkpoint stores on `pool`. The context outlives
// every session.
#pragma once

#include <functional>
#include <string>

#include "agent/migration/modes/migration_context.h"
#include "agent/snapshots/checkpoint_store_access.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/protocol/wire/mover_messages.h"

namespace ckpt::agent::protect {

struct ProtectContext {
  MigrationContext& base;
  asio::thread_pool& pool;
  // Sends a report to the coordinator without a guarantee.
  std::function<void(const wire::SnapshotReport&)> report;
};

// Returns an order for a session that belongs to no migration. The order contains fresh keys.
Result<mover::OpenSession> session_order(mover::Purpose purpose, wire::Side side,
                                         wire::Incarnation incarnation);

}  // namespace ckpt::agent::protect
