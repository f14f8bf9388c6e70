// SPDX-License-Identifier: Apache-2.0
// Decides which jobs run after a restart of the agent. Resumes each job that no move holds, and terminates
// each standby that no record mentions. Reports to the state machines which instances no longer exist (SW-4,
// SW-5, SW-14).
// Threads: the event loop. Ownership: borrows context and protocols, which outlive it. Errors: are logged;
// the job stays as it is.
#pragma once

#include <cstddef>
#include <memory>

#include "agent/migration/modes/migration_context.h"
#include "agent/migration/move_protocol.h"

namespace ckpt::agent {

class Settling {
 public:
  Settling(MigrationContext& context, const MoveProtocols& protocols)
      : context_(context), protocols_(protocols) {}

  // Settles all jobs after the machines were rebuilt. Returns after all jobs are settled, or after a limit.
  // The remaining jobs are then settled in the background.
  Task<> after_restart();
  // Handles the first answer of an instance whose state was unknown.
  void known_again(const std::shared_ptr<Job>& job);

 private:
  struct Open {
    explicit Open(const asio::any_io_executor& executor) : done(executor) {}
    std::size_t count = 0;
    AsyncEvent done;
  };
  Task<> settle_counted(std::shared_ptr<Job> job, std::shared_ptr<Open> open);
  Task<> settle_known(std::shared_ptr<Job> job);
  Task<> settle(std::shared_ptr<Job> job);
  Task<> settle_standby(std::shared_ptr<Job> job);
  Task<> withdraw_leftovers(std::shared_ptr<Job> job);

  MigrationContext& context_;
  const MoveProtocols& protocols_;
  bool began_ = false;
};

}  // namespace ckpt::agent
