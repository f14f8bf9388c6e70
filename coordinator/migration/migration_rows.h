// SPDX-License-Identifier: Apache-2.0
// Creates the rows of new and of recovered migrations, both of a job that moves alone and of ranks that move
// together.
// Threads: one io_context on one thread. Ownership: none. Errors: those of the table.
#pragma once

#include "coordinator/migration/migration_table.h"
#include "coordinator/state/event_log.h"

namespace ckpt::coordinator {

// Returns the row of a move of this rank that begins now. The table assigns its id.
[[nodiscard]] Migration row_of_move(const Job& rank, const Place& to, const wire::MigrationPlan& plan);
// Returns the row of a migration that the store has lost, from the facts in its record. `plan` is null if it
// cannot be decoded.
[[nodiscard]] Migration row_of_record(MigrationId id, JobId rank, Incarnation base,
                                      const wire::MigrationPlan* plan);
// Adds the row of a new migration with its plan to the table, and adds an event for its begin.
Result<Migration*> begin_row(MigrationTable& table, EventLog& events, Migration row,
                             wire::MigrationPlan plan);

}  // namespace ckpt::coordinator
