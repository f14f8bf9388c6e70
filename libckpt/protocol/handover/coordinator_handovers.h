// SPDX-License-Identifier: Apache-2.0
// All handovers of the coordinator: one machine per migration, and one open migration per job (SW-3). It is
// pure; see agent_handovers.h.
// Threads: one.
#pragma once

#include <map>
#include <span>

#include "libckpt/protocol/handover/agent_handovers.h"
#include "libckpt/protocol/handover/coordinator_machine.h"

namespace ckpt::migration {

class CoordinatorHandovers {
 public:
  explicit CoordinatorHandovers(Timing timing) : timing_(timing) {}

  Result<Batches> restore(std::span<const Record> records, Nanos now);
  // Begins a migration. Returns kRefused while another migration of the job is open. The caller gives each
  // migration an id above every earlier one.
  Result<Batches> begin(HandoverInfo info, bool source_connected, bool target_connected, Nanos now);
  // Recovers a handover that an agent has and that is unknown here: the store was lost, or is an older copy.
  // Both sides are queried. Nothing is decided before every granted lease has expired. Returns an error if
  // the handover is known.
  Result<Batches> recover(HandoverInfo info, Nanos now);
  // Delivers a message. A message of an unknown migration is an error: the coordinator never forgets a
  // migration that an agent may still have.
  Result<Batches> on_message(const wire::CommitMessage& message, Nanos now);
  Result<Batches> on_event(MigrationId migration, const CoordinatorEvent& event, Nanos now);
  Result<Batches> record_failed(HandoverKey key, const Reason& reason, Nanos now);

  [[nodiscard]] const CoordinatorState* find(MigrationId migration) const;
  [[nodiscard]] const CoordinatorState* open_of(JobId job) const;  // returns the job's migration that is not
                                                                   // closed yet; null if there is none
  void forget(JobId job);
  void erase_migration(MigrationId migration);

 private:
  struct Held {
    CoordinatorState state;
    CoordinatorState before;
    bool fresh = true;  // whether the record BEGUN may still fail
  };
  Result<void> apply(Held& held, const CoordinatorEvent& event, Nanos now, Batches& out);

  Timing timing_;
  Nanos leases_over_ = 0;  // the time at which all leases from before restore() have expired
  std::map<MigrationId, Held> handovers_;
  std::map<JobId, MigrationId> newest_;  // the newest migration of every job, which is the job's only
                                         // migration that may be open
};

}  // namespace ckpt::migration
