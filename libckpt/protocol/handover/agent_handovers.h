// SPDX-License-Identifier: Apache-2.0
// All handovers of one agent. It has one machine per (migration, role), routes messages to them, and allows
// one open migration per job (SW-3). It answers for unknown migrations (tombstones, SW-5). It is pure like
// the machines: it returns actions, and the driver executes the actions in order. The agent daemon and the
// simulator of the tests drive this class.
// Threads: one. Ownership: plain values. Errors: kProtocol/kInvalidArgument for impossible input; nothing is
// changed then.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "libckpt/protocol/handover/source_machine.h"
#include "libckpt/protocol/handover/target_machine.h"

namespace ckpt::migration {

struct HandoverKey {
  MigrationId migration = 0;
  Role role = Role::kCoordinator;  // the role of the machine: kSource or kTarget; kCoordinator in
                                   // CoordinatorHandovers
  friend auto operator<=>(const HandoverKey&, const HandoverKey&) = default;
};
// The actions of one step of one machine, to be executed in order. The batches of one call are executed in
// order, too. If a WriteRecord in the batch fails cleanly, drop the rest of this batch and call
// record_failed(key).
struct Batch {
  HandoverKey key;
  HandoverInfo info;
  std::vector<Action> actions;
};
using Batches = std::vector<Batch>;

class AgentHandovers {
 public:
  explicit AgentHandovers(Timing timing) : timing_(timing) {}

  // Sets the coordinator's lease term, as last reported. Leases are renewed three times per term.
  void set_lease_term(std::uint32_t term_ms);

  // Restores all machines from the records of this agent's journal, oldest first. Call this once, at start.
  Result<Batches> restore(std::span<const Record> records, Nanos now);
  Result<Batches> on_message(const wire::CommitMessage& message, Nanos now);
  Result<Batches> on_event(HandoverKey key, const SourceEvent& event, Nanos now);
  Result<Batches> on_event(HandoverKey key, const TargetEvent& event, Nanos now);
  Result<Batches> record_failed(HandoverKey key, const Reason& reason, Nanos now);

  // Returns false while a machine is between BARRIER (or COMMITTED) and its end: only a RunInstance action
  // may let the job run then. After restore(), resume at once every paused job of this node for which this
  // returns true (SW-4). A source does not block an instance later than its own, because such an instance was
  // restored from an image since then.
  [[nodiscard]] bool may_run_freely(JobId job, Incarnation incarnation) const;
  [[nodiscard]] const SourceState* source(MigrationId migration) const;
  [[nodiscard]] const TargetState* target(MigrationId migration) const;
  [[nodiscard]] bool idle() const;  // returns whether every machine is closed
  // Returns the keys and jobs of the machines that are not closed.
  [[nodiscard]] std::vector<std::pair<HandoverKey, JobId>> open() const;
  [[nodiscard]] MigrationId newest() const;  // returns the newest migration of any machine here; 0 if there
                                             // is none
  // Drops the machines of a job that ended. The driver also removes the job from the journal.
  void forget(JobId job);

 private:
  template <class State>
  struct Held {
    State state;
    State before;       // the state before the last step, for record_failed
    bool fresh = true;  // whether the machine was made by a step whose record may still fail
  };
  template <class State, class Event>
  Result<void> apply(Held<State>& held, const Event& event, Nanos now, Batches& out);
  template <class State>
  Result<void> fail_record(std::map<MigrationId, Held<State>>& machines, MigrationId id, const Reason& reason,
                           Nanos now, Batches& out);
  Result<Batches> on_prepare(const wire::CommitMessage& message, const wire::Prepare& prepare, Nanos now);
  Result<Batches> on_unknown(const wire::CommitMessage& message);
  // Ends the earlier migrations that a later migration of the job supersedes. Returns false if an earlier
  // migration is not closed yet.
  Result<bool> end_earlier(JobId job, MigrationId migration, Nanos now, Batches& out);
  [[nodiscard]] MigrationId newest_of(JobId job) const;
  // Returns whether a later migration pauses, or has paused, the job. An earlier migration must then not
  // resume the job.
  [[nodiscard]] bool taken_by_later(JobId job, MigrationId migration) const;

  Timing timing_;
  std::map<MigrationId, Held<SourceState>> sources_;
  std::map<MigrationId, Held<TargetState>> targets_;
};

}  // namespace ckpt::migration
