// SPDX-License-Identifier: Apache-2.0
// Sends messages of the migrations to the coordinator: those of the machines, and measurements.
// Threads: the event loop. Ownership: the implementation outlives its users. Errors: best effort. The
// functions return false if the coordinator is disconnected.
#pragma once

#include "libckpt/protocol/wire/commit_messages.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::agent {

class CoordinatorPort {
 public:
  virtual ~CoordinatorPort() = default;
  virtual bool send(const wire::CommitMessage& message) = 0;
  virtual bool send(const wire::MigrationProgress& progress) = 0;
  virtual bool send(const wire::SourceReport& report) = 0;
  // Sends the report to the coordinator, even after the migration has ended.
  virtual bool send(const wire::TargetReport& report) = 0;
};

}  // namespace ckpt::agent
