// SPDX-License-Identifier: Apache-2.0
// The agent's driver of the handover (libckpt/protocol/handover/driver.md). It runs the state machines and
// their journal on a MachineRunner. All migrations share one queue, because a later migration of a job ends
// the machines of an earlier one.
//
// Threads: the event loop. The disk thread accesses the journal, one call at a time. Ownership: the driver
// owns machines, journal and timers. Errors: those of the runner (libckpt/runner/machine_runner.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <variant>

#include "agent/io/async.h"
#include "libckpt/protocol/handover/agent_handovers.h"
#include "libckpt/protocol/handover/journal.h"
#include "libckpt/protocol/handover/machine_types.h"
#include "libckpt/runner/machine_runner.h"

namespace ckpt::agent {

// The environment of the machines. Every call returns at once and is idempotent, because it may be repeated
// after a restart.
class HandoverEffects {
 public:
  virtual ~HandoverEffects() = default;
  virtual void send(const migration::HandoverKey& key, const migration::HandoverInfo& info,
                    const wire::CommitMessage& message) = 0;
  virtual void report(const migration::HandoverKey& key, const migration::HandoverInfo& info,
                      const migration::Report& report) = 0;
  // Performs all actions except WriteRecord, ArmTimer and DisarmTimer.
  virtual void perform(const migration::HandoverKey& key, const migration::HandoverInfo& info,
                       const migration::Action& action) = 0;
};

struct HandoverTypes : migration::MachineTypes {
  struct OfSource {
    migration::HandoverKey key;
    migration::SourceEvent event;
  };
  struct OfTarget {
    migration::HandoverKey key;
    migration::TargetEvent event;
  };
  struct Forget {
    wire::JobId job;
  };
  using Event = std::variant<wire::CommitMessage, OfSource, OfTarget, Forget>;
};

class HandoverDriver : private runner::Protocol<HandoverTypes> {
 public:
  // Limits for waiting messages from other parties, per migration and in total.
  static constexpr std::size_t kMaxOfMigration = 32;
  static constexpr std::size_t kMaxQueued = 512;

  HandoverDriver(asio::io_context& io, asio::thread_pool& disk, migration::Journal journal,
                 migration::Timing timing, HandoverEffects& effects, std::function<void(Error)> fatal);

  // Rebuilds the machines and executes their actions. Call this function once, before all other functions.
  Task<Result<void>> restore();

  // Handles a message of the coordinator or of a peer. The message may be dropped when too many wait
  // (libckpt/runner/remote_messages.h).
  void on_message(wire::CommitMessage message);
  // Handles a message of one machine of this node to another one.
  void on_own_message(wire::CommitMessage message);
  void on_event(migration::HandoverKey key, migration::SourceEvent event);
  void on_event(migration::HandoverKey key, migration::TargetEvent event);

  // Sets the lease term of the coordinator's last welcome. From the next request on, leases are requested at
  // that rate (ask_again()).
  void set_lease_term(std::uint32_t term_ms) { handovers_.set_lease_term(term_ms); }
  // Sends unanswered messages at once and not at the next timer, because a peer can be reached again.
  void ask_again();
  // Removes the machines and records of a job for which no message will arrive.
  void forget(wire::JobId job);

  [[nodiscard]] const migration::AgentHandovers& handovers() const noexcept { return handovers_; }
  [[nodiscard]] std::size_t waiting() const { return runner_.waiting(0); }

 private:
  // Implements runner::Protocol.
  [[nodiscard]] std::uint64_t queue_of(wire::MigrationId /*migration*/) const override { return 0; }
  Result<runner::Step<Batch>> step(wire::MigrationId migration, const Event& event) override;
  [[nodiscard]] Event timer_fired(const Key& key, Timer timer) const override;
  Result<Batches> record_refused(const Batch& batch, const Record& record, const Error& reason) override;
  Result<void> append(const Batch& batch, const Record& record) override;
  void appended(const Batch& batch, const Record& record) override;
  void perform(const Batch& batch, const Action& action) override;
  [[nodiscard]] std::chrono::milliseconds duration(const Batch& batch,
                                                   const migration::ArmTimer& timer) const override;
  void on_event_done(wire::MigrationId migration, const Event* event, const Result<void>& outcome) override;
  [[nodiscard]] std::string name_of(const Record& record) const override;

  // Refuses the migration. Called when the disk has no space for it.
  void refuse(const wire::CommitMessage& prepare, const Error& error);

  migration::Journal journal_;
  migration::AgentHandovers handovers_;
  HandoverEffects& effects_;
  runner::MachineRunner<HandoverTypes> runner_;
};

}  // namespace ckpt::agent
