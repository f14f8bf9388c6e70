// SPDX-License-Identifier: Apache-2.0
// Stores the log of a CRIU that failed (host_process/files/kept_logs.h). The folder with the images is
// removed when the move ends, so the error would name a log that no longer exists.
// Threads: the event loop. Files are copied on the pool of images. Ownership: the context outlives it.
// Errors: none. If a log cannot be stored, the error is not changed.
#pragma once

#include <string>

#include "agent/migration/modes/job_operation.h"
#include "agent/migration/modes/migration_context.h"

namespace ckpt::agent {

[[nodiscard]] std::string kept_logs_folder(const Config& config);
// Returns the error with the path of the stored log in place of `log`, which CRIU has written.
Task<Error> save_criu_log(MigrationContext& context, const JobOperation& operation, std::string log,
                          Error error);

}  // namespace ckpt::agent
