// SPDX-License-Identifier: Apache-2.0
// Runs the machines of all parties of moves of ranks on this node (libckpt/protocol/gang): one queue of events, one
// journal, the timers. As HandoverDriver does for jobs of one rank: actions of a batch are executed in order, and a
// WriteRecord is awaited. Everything else returns at once and reports back by an event.
//
// Records of bystanders survive this process but no power cut: their ranks do not survive that either.
// Threads: the event loop; the journal is touched by the disk thread, one call at a time. Ownership: the driver owns
// machines, journal and timers. Errors: an impossible event is logged and changes nothing. A record of unknown fate calls
// `fatal`, which must end the process.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "agent/io/async.h"
#include "libckpt/base/rarely.h"
#include "libckpt/protocol/gang/gang_parties.h"

namespace ckpt::agent {

// The outside world of the machines. Every call returns at once and is idempotent.
class GangEffects {
 public:
  virtual ~GangEffects() = default;
  virtual void send(const gang::PartyKey& key, const gang::GangInfo& info, const gang::Send& what) = 0;
  // A message for a party that is not known here: its sender, the coordinator, is to describe the move.
  virtual void ask_for_info(const gang::GangMessage& message) = 0;
  // The party has sent all that it has recorded to a coordinator that lost its own record of the move.
  virtual void has_stated_all(const gang::PartyKey& key, const gang::GangInfo& info) = 0;
  // All other actions but WriteRecord, ArmTimer, DisarmTimer.
  virtual void perform(const gang::PartyKey& key, const gang::GangInfo& info, const gang::Action& action) = 0;
};

class GangDriver {
 public:
  struct Machines {
    asio::io_context& io;
    asio::thread_pool& disk;
    gang::GangJournal journal;
    gang::Timing timing;
    std::function<void(Error)> fatal;
  };
  GangDriver(Machines machines, GangEffects& effects);

  // Once, before anything else: rebuilds the machines and executes their actions.
  Task<Result<void>> restore();
  // Dropped when too many wait: it is sent again.
  void on_message(gang::GangMessage message);
  void on_own_message(gang::GangMessage message);
  void on_event(const gang::PartyKey& key, gang::PartyEvent event);
  void set_lease_term(std::uint32_t term_ms) { parties_.set_lease_term(term_ms); }
  // The coordinator can be reached again: unanswered messages are sent now.
  void ask_again();
  // Machines and records of closed moves that this is true of.
  void forget(std::function<bool(const gang::GangInfo&)> which);

  [[nodiscard]] const gang::GangParties& parties() const noexcept { return parties_; }

 private:
  struct Event {
    gang::PartyKey key;
    gang::PartyEvent what;
  };
  struct Forget {
    std::function<bool(const gang::GangInfo&)> which;
  };
  struct Received {
    gang::GangMessage message;
    bool is_own = false;
  };
  using Item = std::variant<Received, Event, Forget>;
  using Batches = std::vector<gang::Batch>;
  struct ArmedTimer {
    std::unique_ptr<asio::steady_timer> timer;
    std::uint64_t generation = 0;
  };
  using TimerKey = std::pair<gang::PartyKey, gang::Timer>;

  void put(Item item);
  Task<> drain();
  Task<> take(Item item);
  Task<> take_message(gang::GangMessage message);
  Task<> compact_without(const Forget& forget);
  Task<bool> has_room_for(const gang::GangMessage& message);
  Task<> execute(Batches batches);
  // False: refused; the rest of the batch is dropped and `out` holds the machine's next batches.
  Task<bool> write(const gang::Batch& batch, const gang::Record& record, Batches& out);
  void perform(const gang::Batch& batch, const gang::Action& action);
  void arm(const gang::PartyKey& key, const gang::ArmTimer& action);
  void fire(const gang::PartyKey& key, gang::Timer timer);
  void refuse(const Error& error);

  asio::io_context& io_;
  asio::thread_pool& disk_;
  gang::GangJournal journal_;
  gang::GangParties parties_;
  GangEffects& effects_;
  std::function<void(Error)> fatal_;
  std::deque<Item> queue_;
  std::size_t received_ = 0;  // messages of others that wait
  Rarely dropped_;
  Rarely refused_;
  bool is_draining_ = false;
  std::map<TimerKey, ArmedTimer> timers_;
  std::uint64_t next_generation_ = 1;
};

}  // namespace ckpt::agent
