// SPDX-License-Identifier: Apache-2.0
// All switches of one agent. It holds one machine per (migration, role), routes messages to them, and keeps
// one migration of a job open at a time (SW-3). It answers for unknown migrations (tombstones,
// SW-5). Pure like the machines: it returns actions, the driver executes them in order. The agent daemon and
// the simulator of the tests drive this class.
// Threads: one. Ownership: values only. Errors: kProtocol/kInvalidArgument for what cannot be, with nothing
// changed.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "libckpt/protocol/handover/source_machine.h"
#include "libckpt/protocol/handover/target_machine.h"

namespace ckpt::migration {

struct SwitchKey {
  MigrationId migration = 0;
  Role role = Role::kCoordinator;  // kSource or kTarget; kCoordinator in CoordinatorSwitches
  friend auto operator<=>(const SwitchKey&, const SwitchKey&) = default;
};
// The actions of one step of one machine, to be executed in order. Batches of one call are executed in order,
// too. When a WriteRecord in it fails cleanly: drop the rest of this batch and call record_failed(key).
struct Batch {
  SwitchKey key;
  SwitchInfo info;
  std::vector<Action> actions;
};
using Batches = std::vector<Batch>;

class AgentSwitches {
 public:
  explicit AgentSwitches(Timing timing) : timing_(timing) {}

  // The coordinator's lease term, as last reported: leases are renewed three times in it.
  void set_lease_term(std::uint32_t term_ms);

  // At start, once: all records of this agent's journal, oldest first.
  Result<Batches> restore(std::span<const Record> records, Nanos now);
  Result<Batches> on_message(const wire::CommitMessage& message, Nanos now);
  Result<Batches> on_event(SwitchKey key, const SourceEvent& event, Nanos now);
  Result<Batches> on_event(SwitchKey key, const TargetEvent& event, Nanos now);
  Result<Batches> record_failed(SwitchKey key, const Reason& reason, Nanos now);

  // False while some machine is between BARRIER (or COMMITTED) and its end: then only a RunInstance action
  // may let the job run. After restore(), every paused job of this node for which this is true must be let go
  // on at once (SW-4). A source holds no later instance than its own: that one has come back from an image since.
  [[nodiscard]] bool may_run_freely(JobId job, Incarnation incarnation) const;
  [[nodiscard]] const SourceState* source(MigrationId migration) const;
  [[nodiscard]] const TargetState* target(MigrationId migration) const;
  [[nodiscard]] bool idle() const;  // every machine is closed
  // The keys and jobs of the machines that are not closed.
  [[nodiscard]] std::vector<std::pair<SwitchKey, JobId>> open() const;
  [[nodiscard]] MigrationId newest() const;  // that any machine here is of; 0: none
  // Drops the machines of a job that ended; the driver forgets it in the journal, too.
  void forget(JobId job);

 private:
  template <class State>
  struct Held {
    State state;
    State before;       // for record_failed
    bool fresh = true;  // made by the step whose record may still fail
  };
  template <class State, class Event>
  Result<void> apply(Held<State>& held, const Event& event, Nanos now, Batches& out);
  template <class State>
  Result<void> fail_record(std::map<MigrationId, Held<State>>& machines, MigrationId id, const Reason& reason,
                           Nanos now, Batches& out);
  Result<Batches> on_prepare(const wire::CommitMessage& message, const wire::Prepare& prepare, Nanos now);
  Result<Batches> on_unknown(const wire::CommitMessage& message);
  // Ends what a later migration of the job supersedes; false if something earlier is not closed yet.
  Result<bool> end_earlier(JobId job, MigrationId migration, Nanos now, Batches& out);
  [[nodiscard]] MigrationId newest_of(JobId job) const;
  // A later migration pauses, or has paused, the job: an earlier one must not let it go on any more.
  [[nodiscard]] bool taken_by_later(JobId job, MigrationId migration) const;

  Timing timing_;
  std::map<MigrationId, Held<SourceState>> sources_;
  std::map<MigrationId, Held<TargetState>> targets_;
};

}  // namespace ckpt::migration
