// SPDX-License-Identifier: Apache-2.0
// What snapshots and restores need of their agent. Threads: the event loop, but `pool`, on which they look at
// vaults; the context outlives every session.
#pragma once

#include <functional>
#include <string>

#include "agent/migration/modes/migration_context.h"
#include "agent/snapshots/vault_access.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "libckpt/protocol/wire/mover_values.h"

namespace ckpt::agent::protect {

struct ProtectContext {
  MigrationContext& base;
  asio::thread_pool& pool;
  // As NVML names the GPU; kNotFound if the node has no such GPU.
  std::function<Result<std::string>(std::uint32_t gpu)> model_of;
  // Best effort, to the coordinator.
  std::function<void(const wire::SnapshotReport&)> report;
};

// What a way (mode.h) calls a migration is a number that no migration has. A job has one snapshot at a time,
// always of the same number, so that what an agent left which died in it is found by the next one.
inline constexpr wire::MigrationId kSnapshotNumber = wire::MigrationId{1} << 63;
// Restores: never two of the same.
[[nodiscard]] wire::MigrationId next_restore_number();
// Of sessions on movers.
[[nodiscard]] mover::SessionKey next_session_key();

// A plan for `spec` alone, as if it came from (or went to) nowhere, with fresh keys.
Result<wire::MigrationPlan> plan_for(const wire::JobSpec& spec, const std::string& source_node,
                                     const std::string& target_node);

}  // namespace ckpt::agent::protect
