// SPDX-License-Identifier: Apache-2.0
// Runs the pure switch machines of this agent (libckpt/protocol/handover/driver.md): one queue of events, one
// journal, the timers. Inside a batch the actions are executed strictly in order. A WriteRecord is awaited
// (fdatasync on the disk thread). Everything else returns at once and reports back by an event. So SW-2 holds
// independently of the effects.
//
// Threads: the event loop; the journal is touched by the disk thread, one call at a time. Ownership: the
// driver owns machines, journal and timers. Errors: an impossible event is logged and changes nothing. A
// record that was refused cleanly is fed back to its machine. A record of unknown fate calls `fatal`, which
// must end the process: the restart reads the journal's content.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>

#include "agent/io/async.h"
#include "agent/migration/handover_queue.h"
#include "libckpt/base/fault.h"
#include "libckpt/base/rarely.h"
#include "libckpt/protocol/handover/agent_switches.h"
#include "libckpt/protocol/handover/journal.h"

namespace ckpt::agent {

// The outside world of the machines. Every call returns at once and is idempotent (it may be repeated after a
// restart).
class HandoverEffects {
 public:
  virtual ~HandoverEffects() = default;
  virtual void send(const migration::SwitchKey& key, const migration::SwitchInfo& info,
                    const wire::SwitchMessage& message) = 0;
  virtual void report(const migration::SwitchKey& key, const migration::SwitchInfo& info,
                      const migration::Report& report) = 0;
  // All other actions but WriteRecord, ArmTimer, DisarmTimer.
  virtual void perform(const migration::SwitchKey& key, const migration::SwitchInfo& info,
                       const migration::Action& action) = 0;
};

class HandoverDriver {
 public:
  HandoverDriver(asio::io_context& io, asio::thread_pool& disk, migration::Journal journal,
                 migration::Timing timing, HandoverEffects& effects, std::function<void(Error)> fatal);

  // Once, before anything else: rebuilds the machines and executes their actions.
  Task<Result<void>> restore();

  // Of the coordinator or of a peer: it may be dropped when too many wait (handover_queue.h).
  void on_message(wire::SwitchMessage message);
  // Of one machine here to another one here.
  void on_own_message(wire::SwitchMessage message);
  void on_event(migration::SwitchKey key, migration::SourceEvent event);
  void on_event(migration::SwitchKey key, migration::TargetEvent event);

  // The lease term of the coordinator's last welcome. Leases are requested at that pace from the next request
  // on (ask_again()).
  void set_lease_term(std::uint32_t term_ms) { switches_.set_lease_term(term_ms); }
  // A peer of the machines can be reached again: unanswered messages are sent now instead of at the next
  // timer.
  void ask_again();
  // No message about the job will come any more: its machines and records are removed.
  void forget(wire::JobId job);

  [[nodiscard]] const migration::AgentSwitches& switches() const noexcept { return switches_; }
  [[nodiscard]] std::size_t waiting() const noexcept { return queue_.size(); }

 private:
  using Item = HandoverQueue::Item;
  struct ArmedTimer {
    std::unique_ptr<asio::steady_timer> timer;
    std::uint64_t generation = 0;
  };
  using TimerKey = std::pair<migration::SwitchKey, migration::Timer>;

  void enqueue(Item item);
  void drain_if_idle();
  Task<> drain();
  Task<> take(Item item);
  Task<> compact_without(wire::JobId job);
  // False: the disk has no space for a migration; Refused has been sent.
  Task<bool> has_room_for(const wire::SwitchMessage& message);
  Result<migration::Batches> feed(const Item& item);
  Task<> execute(migration::Batches batches);
  // False: refused; the rest of the batch is dropped and `out` holds the machine's next batches.
  Task<bool> write(const migration::Batch& batch, const migration::Record& record, migration::Batches& out);
  void perform(const migration::Batch& batch, const migration::Action& action);
  void arm(const migration::SwitchKey& key, const migration::ArmTimer& action);
  void fire(const migration::SwitchKey& key, migration::Timer timer);

  asio::io_context& io_;
  asio::thread_pool& disk_;
  migration::Journal journal_;
  migration::AgentSwitches switches_;
  HandoverEffects& effects_;
  std::function<void(Error)> fatal_;
  HandoverQueue queue_;
  Rarely dropped_;
  Rarely refused_;
  bool draining_ = false;
  std::map<TimerKey, ArmedTimer> timers_;
  std::uint64_t next_generation_ = 1;
};

}  // namespace ckpt::agent
