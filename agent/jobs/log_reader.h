// SPDX-License-Identifier: Apache-2.0
// Reads parts of an instance's log (standard output and error of its ranks) for the coordinator, and follows
// the log without polling.
// Threads: the event loop. Errors: kInvalidArgument, kNotFound, kIo.
#pragma once

#include <memory>

#include "agent/jobs/job.h"
#include "libckpt/protocol/wire/job_messages.h"

namespace ckpt::agent {

// Returns the bytes from request.offset on, or from the first later byte that was not deleted (log_limit.h).
// The result has at most request.limit and wire::kMaxLogBytes bytes. If there are no bytes yet, the answer
// waits for bytes, for the instance's end, or for request.follow_ns.
Task<Result<wire::LogData>> read_log(const JobEnvironment& environment, std::shared_ptr<Job> job,
                                     wire::ReadLog request);

}  // namespace ckpt::agent
