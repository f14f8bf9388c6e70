// SPDX-License-Identifier: Apache-2.0
// Saves a context before a kill. A restore may have recreated the context. Some drivers hang the GPU, or the
// host, if a process with such a context is killed. Therefore the rank is paused and releases its memory, and
// its context is locked and saved.
// Threads: the event loop. Errors: kTimedOut after kMaxLastSave (calls in progress then last until the
// process exits), or else errors of the keeper or the driver. The caller kills the rank in each case, and
// reports the error.
#pragma once

#include <memory>

#include "agent/jobs/job.h"
#include "agent/migration/modes/migration_context.h"

namespace ckpt::agent {

inline constexpr Milliseconds kMaxLastSave{5000};

Task<Result<void>> save_before_kill(MigrationContext& context, std::shared_ptr<Job> job);

}  // namespace ckpt::agent
