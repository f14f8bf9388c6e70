// SPDX-License-Identifier: Apache-2.0
// Checks whether a job can leave this GPU. A migration's source asks before it touches anything, and so does
// a dry run.
// Threads: the event loop. Errors: kRefused, kNotFound, kNotSupported, kUnavailable, with the reason.
#pragma once

#include <memory>

#include "agent/migration/modes/mode.h"

namespace ckpt::agent {

// Returns the state of the job's memory. `job` may be null: it does not run here.
Task<Result<local::StateSummary>> check_source(SourceMode& mode, std::shared_ptr<Job> job, wire::JobId id);
// Checks a move that does not begin, and returns the needs that its target would have to meet.
Task<Result<wire::MoveNeeds>> check_move(MigrationContext& context, wire::CheckMove request);

}  // namespace ckpt::agent
