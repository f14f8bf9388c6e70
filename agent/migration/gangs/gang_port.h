// SPDX-License-Identifier: Apache-2.0
// Sends messages of moves of ranks to the coordinator: those of the machines, and answers to its orders.
// Threads: the event loop. Errors: none. The functions return false if the coordinator is not connected.
#pragma once

#include "libckpt/base/result.h"
#include "libckpt/protocol/gang/gang_plan.h"
#include "libckpt/protocol/gang/gang_records.h"
#include "libckpt/protocol/wire/image_messages.h"

namespace ckpt::agent {

class GangPort {
 public:
  virtual ~GangPort() = default;
  virtual bool send(const wire::CommitMessage& message) = 0;
  virtual bool send(const wire::RankGathered& answer) = 0;
  virtual bool send(const gang::RankGroups& answer) = 0;
  // Answers a request that has failed.
  virtual void reply(std::uint64_t request, const Error& reason) = 0;
};

}  // namespace ckpt::agent
