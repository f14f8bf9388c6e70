// SPDX-License-Identifier: Apache-2.0
// Parts of an instance's log (standard output and error of its ranks) for the coordinator, following it
// without polling.
// Threads: the event loop. Errors: kInvalidArgument, kNotFound, kIo.
#pragma once

#include <memory>

#include "agent/jobs/job.h"
#include "libckpt/protocol/wire/job_messages.h"

namespace ckpt::agent {

// The bytes from request.offset on, or from the first one behind it that was not freed (log_limit.h); at most
// request.limit and wire::kMaxLogBytes. Without any yet the answer waits for bytes, for the instance's end,
// or for request.follow_ns.
Task<Result<wire::LogData>> read_log(const JobEnvironment& environment, std::shared_ptr<Job> job,
                                     wire::ReadLog request);

}  // namespace ckpt::agent
