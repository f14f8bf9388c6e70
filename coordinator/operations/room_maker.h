// SPDX-License-Identifier: Apache-2.0
// Asked before a job is placed that may have others parked for it (SubmitRequest::preempt).
// Threads: one io_context on one thread. Errors: kRefused: there is no room to be made; kTimedOut: it did not
// become free.
#pragma once

#include "coordinator/operations/planner.h"
#include "libckpt/net/control/asio.h"

namespace ckpt::coordinator {

class RoomMaker {
 public:
  virtual ~RoomMaker() = default;
  // Returns once the job fits, for who submits it at once.
  virtual control::Task<Result<void>> make_room(SubmitRequest request) = 0;
};

}  // namespace ckpt::coordinator
