// SPDX-License-Identifier: Apache-2.0
// Before a kill. A context may have come back by a restore. Some drivers hang the GPU, or the host, if a
// process is killed while it has such a context. So the rank is paused, lets go of its memory, and its
// context is locked and saved.
// Threads: the event loop. Errors: kTimedOut after kMaxLastSave (calls under way end with the process), else
// those of the keeper or the driver. The caller kills in each case, and reports it.
#pragma once

#include <memory>

#include "agent/jobs/job.h"
#include "agent/migration/modes/migration_context.h"

namespace ckpt::agent {

inline constexpr Milliseconds kMaxLastSave{5000};

Task<Result<void>> save_before_kill(MigrationContext& context, std::shared_ptr<Job> job);

}  // namespace ckpt::agent
