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
  // Sends to the coordinator on a best-effort basis.
  std::function<void(const wire::SnapshotReport&)> report;
};

// Returns an order for a session that no migration has, with fresh keys.
Result<mover::OpenSession> session_order(mover::Purpose purpose, wire::Side side,
                                         wire::Incarnation incarnation);

}  // namespace ckpt::agent::protect
