// SPDX-License-Identifier: Apache-2.0
// Makes other operations release a job that a migration needs.
// Threads: the event loop. Ownership: the implementation outlives its users. Errors: none.
#pragma once

#include "agent/io/async.h"
#include "libckpt/protocol/wire/commit_messages.h"

namespace ckpt::agent {

class HolderPort {
 public:
  virtual ~HolderPort() = default;
  // Returns once no other operation uses the job. A running snapshot of the job is canceled and counts as
  // failed.
  virtual Task<> acquire_exclusive(wire::JobId job) = 0;
};

}  // namespace ckpt::agent
