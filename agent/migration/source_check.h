// SPDX-License-Identifier: Apache-2.0
// Whether a job can leave this GPU: what a migration's source asks before it touches anything, and what a dry
// run asks.
// Threads: the event loop. Errors: kRefused, kNotFound, kNotSupported, kUnavailable, with the reason.
#pragma once

#include <memory>

#include "agent/migration/modes/mode.h"

namespace ckpt::agent {

// The state of its memory. `job` may be null: it does not run here.
Task<Result<local::StateSummary>> check_source(SourceMode& mode, std::shared_ptr<Job> job, wire::JobId id);
// The same of a move that does not begin, with what its target would have to take.
Task<Result<wire::MoveNeeds>> check_move(MigrationContext& context, wire::CheckMove request);

}  // namespace ckpt::agent
