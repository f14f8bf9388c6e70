// SPDX-License-Identifier: Apache-2.0
// Passes the events of a migration's two sessions to the machine that decides.
// Threads: the event loop. A call returns at once: the session continues before the machine has decided.
// Ownership: the implementation outlives the sessions. Errors: none. An unknown migration's event is dropped.
#pragma once

#include "libckpt/protocol/handover/agent_handovers.h"

namespace ckpt::agent {

class SessionPort {
 public:
  virtual ~SessionPort() = default;
  virtual void on_event(migration::HandoverKey key, migration::SourceEvent event) = 0;
  virtual void on_event(migration::HandoverKey key, migration::TargetEvent event) = 0;
};

}  // namespace ckpt::agent
