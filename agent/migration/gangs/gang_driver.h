// SPDX-License-Identifier: Apache-2.0
// The agent's driver of moves of ranks (libckpt/protocol/gang). It runs the state machines of all parties on
// this node and their journal, on a MachineRunner. All parties share one queue, because a later move of a
// rank ends the machines of an earlier move.
//
// Records of bystanders survive this process but no power failure, which their ranks do not survive either.
// Threads: the event loop. The disk thread accesses the journal, one call at a time. Ownership: the driver
// owns machines, journal and timers. Errors: those of the runner (libckpt/runner/machine_runner.h).
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "agent/io/async.h"
#include "libckpt/protocol/gang/gang_parties.h"
#include "libckpt/protocol/gang/machine_types.h"
#include "libckpt/runner/machine_runner.h"

namespace ckpt::agent {

// The actions of the machines on their environment. Every call returns at once and is idempotent.
class GangEffects {
 public:
  virtual ~GangEffects() = default;
  virtual void send(const gang::PartyKey& key, const gang::GangInfo& info, const gang::Send& what) = 0;
  // Requests a description of the move from the coordinator, after a message for an unknown party.
  virtual void ask_for_info(const wire::CommitMessage& message) = 0;
  // Handles the completion of a party's report. The party has sent all its records to a coordinator that lost
  // its own record of the move.
  virtual void has_stated_all(const gang::PartyKey& key, const gang::GangInfo& info) = 0;
  // Performs all actions except WriteRecord, ArmTimer and DisarmTimer.
  virtual void perform(const gang::PartyKey& key, const gang::GangInfo& info, const gang::Action& action) = 0;
};

struct GangTypes : gang::MachineTypes {
  struct OfParty {
    gang::PartyKey key;
    gang::PartyEvent event;
  };
  struct Forget {
    std::function<bool(const gang::GangInfo&)> which;
  };
  using Event = std::variant<wire::CommitMessage, OfParty, Forget>;
  using Batch = gang::Batch;
};

class GangDriver : private runner::Protocol<GangTypes> {
 public:
  struct Machines {
    asio::io_context& io;
    asio::thread_pool& disk;
    gang::GangJournal journal;
    gang::Timing timing;
    std::function<void(Error)> fatal;
  };
  GangDriver(Machines machines, GangEffects& effects);

  // Rebuilds the machines and executes their actions. Call this function once, before all other functions.
  Task<Result<void>> restore();
  // Handles a message of the coordinator or of a peer. The message may be dropped when too many wait, because
  // the sender repeats it.
  void on_message(wire::CommitMessage message);
  void on_own_message(wire::CommitMessage message);
  void on_event(const gang::PartyKey& key, gang::PartyEvent event);
  void set_lease_term(std::uint32_t term_ms) { parties_.set_lease_term(term_ms); }
  // Sends unanswered messages at once, because the coordinator can be reached again.
  void ask_again();
  // Removes machines and records of closed moves for which `which` returns true.
  void forget(std::function<bool(const gang::GangInfo&)> which);

  [[nodiscard]] const gang::GangParties& parties() const noexcept { return parties_; }

 private:
  using Step = runner::Step<gang::Batch>;

  // Implements runner::Protocol.
  [[nodiscard]] std::uint64_t queue_of(wire::MigrationId /*migration*/) const override { return 0; }
  Result<Step> step(wire::MigrationId migration, const Event& event) override;
  [[nodiscard]] Event timer_fired(const Key& key, Timer timer) const override;
  Result<Batches> record_refused(const Batch& batch, const Record& record, const Error& reason) override;
  Result<void> append(const Batch& batch, const Record& record) override;
  void appended(const Batch& batch, const Record& record) override;
  void perform(const Batch& batch, const Action& action) override;
  [[nodiscard]] std::chrono::milliseconds duration(const Batch& batch,
                                                   const gang::ArmTimer& timer) const override;
  void on_event_done(wire::MigrationId migration, const Event* event, const Result<void>& outcome) override;
  [[nodiscard]] std::string name_of(const Record& record) const override;

  Result<Step> handle_message(const wire::CommitMessage& message);
  Result<Batches> hand_over(const wire::CommitMessage& message);
  Step compact_without(const std::function<bool(const gang::GangInfo&)>& which);

  gang::GangJournal journal_;
  gang::GangParties parties_;
  GangEffects& effects_;
  runner::MachineRunner<GangTypes> runner_;
};

}  // namespace ckpt::agent
