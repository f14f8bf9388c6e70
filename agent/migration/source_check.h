// SPDX-License-Identifier: Apache-2.0
// Checks whether a job can leave this GPU. A migration's source makes this check before it changes anything,
// and a dry run makes the same check.
// Threads: the event loop. Errors: kRefused, kNotFound, kNotSupported and kUnavailable, with the reason.
#pragma once

#include <memory>

#include "agent/migration/modes/mode.h"

namespace ckpt::agent {

// Returns the state of the job's memory. A null `job` means that the job does not run here.
Task<Result<local::StateSummary>> check_source(SourceMode& mode, std::shared_ptr<Job> job, wire::JobId id);
// Checks a move that does not begin, and returns the requirements for its target.
Task<Result<wire::MoveNeeds>> check_move(MigrationContext& context, wire::CheckMove request);

}  // namespace ckpt::agent
