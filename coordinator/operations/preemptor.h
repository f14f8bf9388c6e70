// SPDX-License-Identifier: Apache-2.0
// Parks jobs of lower priority before a job is placed that may preempt them (SubmitRequest::preempt).
// Threads: one io_context on one thread. Errors: kRefused: parking jobs would not help; kTimedOut: their
// memory did not become free.
#pragma once

#include "coordinator/operations/planner.h"
#include "libckpt/net/control/asio.h"

namespace ckpt::coordinator {

class Preemptor {
 public:
  virtual ~Preemptor() = default;
  // Returns once the job fits; the caller submits it at once.
  virtual control::Task<Result<void>> preempt_for(SubmitRequest request) = 0;
};

}  // namespace ckpt::coordinator
