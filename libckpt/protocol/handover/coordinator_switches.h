// SPDX-License-Identifier: Apache-2.0
// All switches of the coordinator: one machine per migration, one open migration per job (SW-3). Pure; see
// agent_switches.h. Threads: one.
#pragma once

#include <map>
#include <span>

#include "libckpt/protocol/handover/agent_switches.h"
#include "libckpt/protocol/handover/coordinator_machine.h"

namespace ckpt::migration {

class CoordinatorSwitches {
 public:
  explicit CoordinatorSwitches(Timing timing) : timing_(timing) {}

  Result<Batches> restore(std::span<const Record> records, Nanos now);
  // kRefused while another migration of the job is open. The caller gives a migration id above every earlier
  // one.
  Result<Batches> begin(SwitchInfo info, bool source_connected, bool target_connected, Nanos now);
  // An agent has a switch of which nothing is known here: the store was lost, or is an older copy. Both sides
  // are asked about it, and it is not decided before every lease that was given is over. An error if it is
  // known.
  Result<Batches> recover(SwitchInfo info, Nanos now);
  // Messages of unknown migrations are an error: the coordinator never forgets one that an agent may still
  // hold.
  Result<Batches> on_message(const wire::CommitMessage& message, Nanos now);
  Result<Batches> on_event(MigrationId migration, const CoordinatorEvent& event, Nanos now);
  Result<Batches> record_failed(SwitchKey key, const Reason& reason, Nanos now);

  [[nodiscard]] const CoordinatorState* find(MigrationId migration) const;
  [[nodiscard]] const CoordinatorState* open_of(JobId job) const;  // not closed yet
  void forget(JobId job);
  void forget_migration(MigrationId migration);

 private:
  struct Held {
    CoordinatorState state;
    CoordinatorState before;
    bool fresh = true;  // BEGUN may still fail
  };
  Result<void> apply(Held& held, const CoordinatorEvent& event, Nanos now, Batches& out);

  Timing timing_;
  Nanos leases_over_ = 0;  // that were given before restore()
  std::map<MigrationId, Held> switches_;
  std::map<JobId, MigrationId> newest_;  // the only one of a job that may be open
};

}  // namespace ckpt::migration
