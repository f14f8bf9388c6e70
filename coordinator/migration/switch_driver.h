// SPDX-License-Identifier: Apache-2.0
// Runs the coordinator's pure switch machines (libckpt/protocol/handover/driver.md): a queue of events for
// each migration, one journal, the timers.
//
// Inside a batch the actions are executed strictly in order. Actions after a WriteRecord wait until it is
// durable, and so does every later event of that migration: SW-2. Other migrations continue meanwhile.
// Actions without a record are done before the call returns. The journal is compacted when it is large and
// has doubled since, and once the store is durable with the facts of the forgotten records.
//
// Threads: the event loop; the journal is the disk thread's. Ownership: owns machines, journal, timers and
// that thread; borrows the effects. Its end waits for the records that are being written; the actions
// after them are left to the next start, as in a crash.
// Errors: an impossible event is logged and changes nothing. A record that was refused cleanly goes back
// to its machine. One of unknown fate calls `fatal`, which must end the process: the restart reads the
// journal.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "libckpt/base/rarely.h"
#include "libckpt/net/control/asio.h"
#include "libckpt/protocol/handover/coordinator_switches.h"
#include "libckpt/protocol/handover/journal.h"

namespace ckpt::coordinator {

// The outside world of the machines. Called on the loop; may put events into the driver.
class SwitchEffects {
 public:
  virtual ~SwitchEffects() = default;
  // The event is about to be handed to its machine.
  virtual void taking(migration::MigrationId id, const migration::CoordinatorEvent& event) = 0;
  virtual void send(const migration::SwitchInfo& info, const migration::Send& message) = 0;
  virtual void report(const migration::SwitchInfo& info, const migration::Report& report) = 0;
  // BEGUN was refused: nothing was touched, and there is no machine.
  virtual void not_begun(migration::MigrationId id, const Error& why) = 0;
  // All that an event led to is done.
  virtual void handled(migration::MigrationId id) = 0;
  [[nodiscard]] virtual std::chrono::milliseconds duration(migration::MigrationId id,
                                                           const migration::ArmTimer& timer) const = 0;
  // Which records need not stay. Returns once the facts that replace them are durable.
  using Forget = std::function<bool(const migration::Record&)>;
  virtual control::Task<Result<Forget>> forgettable() = 0;
};

class SwitchDriver {
 public:
  SwitchDriver(control::asio::any_io_executor executor, migration::Journal journal, migration::Timing timing,
               SwitchEffects& effects, std::function<void(const Error&)> fatal);
  ~SwitchDriver();
  SwitchDriver(const SwitchDriver&) = delete;
  SwitchDriver& operator=(const SwitchDriver&) = delete;

  // As the journal was opened: before the first event.
  [[nodiscard]] std::vector<migration::Record> records() const { return journal_.records(); }
  // Once, before all else.
  Result<void> restore(const std::vector<migration::Record>& records);

  // Its record is written with space reserved for the rest of the migration. Refused without it: not_begun().
  Result<void> begin(migration::SwitchInfo info, bool source_connected, bool target_connected);
  Result<void> recover(migration::SwitchInfo info);
  // Of a node. Dropped while kMaxHeard of them wait for a record of the migration: nodes repeat what they say.
  static constexpr std::size_t kMaxHeard = 32;
  void on_message(wire::SwitchMessage message);
  void on_event(migration::MigrationId id, migration::CoordinatorEvent event);
  // Returns when all is done that the event leads to, or with why it cannot be.
  control::Task<Result<void>> handle(migration::MigrationId id, migration::CoordinatorEvent event);
  // Returns when all is done that came for the migration up to now.
  control::Task<> caught_up(migration::MigrationId id);

  // Of the records up to now.
  control::Task<Result<migration::Journal::Copy>> copy_journal();
  void forget(migration::MigrationId id);
  // Something that came for it is not done.
  [[nodiscard]] bool is_busy(migration::MigrationId id) const { return queues_.contains(id); }
  [[nodiscard]] std::size_t waiting(migration::MigrationId id) const;
  [[nodiscard]] const migration::CoordinatorSwitches& switches() const noexcept { return switches_; }

 private:
  using MigrationId = migration::MigrationId;
  using Then = std::function<void(const Result<void>&)>;
  struct Item {
    // Batches: of a machine that has just begun. None: a mark in the queue.
    std::variant<migration::Batches, wire::SwitchMessage, migration::CoordinatorEvent> what;
    Then then;
  };
  struct Queue {
    std::deque<Item> items;
    std::size_t heard = 0;  // messages among them
    bool busy = false;
    // Of the item that was taken.
    Then then;
    Result<void> outcome = ok();
    std::deque<migration::Batch> batches;
    std::size_t next = 0;  // action of the first
    bool started = false;  // it sent Start
  };
  struct Written {
    Result<void> outcome;
    std::uint64_t bytes = 0;  // of the journal, then
  };
  using TimerKey = std::pair<MigrationId, migration::Timer>;

  void put(MigrationId id, Item item);
  control::Task<Result<void>> put_and_wait(MigrationId id, Item item);
  void go_on(MigrationId id);
  void take(MigrationId id, Queue& queue);
  Result<migration::Batches> feed(MigrationId id, Item& item);
  // False: a record is being written.
  bool execute(MigrationId id, Queue& queue);
  void perform(const migration::Batch& batch, const migration::Action& action);
  void write(MigrationId id, const migration::Record& record);
  void written(MigrationId id, const migration::Record& record, const Written& written);
  void refused(MigrationId id, Queue& queue, const Error& error);
  void arm(MigrationId id, const migration::ArmTimer& action);
  void compact_if_large();
  control::Task<> compact();

  // On the disk thread.
  Written append(const migration::Record& record);

  control::asio::any_io_executor executor_;
  migration::Journal journal_;
  migration::CoordinatorSwitches switches_;
  SwitchEffects& effects_;
  std::function<void(const Error&)> fatal_;
  std::map<MigrationId, Queue> queues_;  // with something to do
  std::map<TimerKey, std::shared_ptr<control::asio::steady_timer>> timers_;
  std::uint64_t journal_bytes_ = 0;  // as the disk thread last reported
  std::uint64_t compact_at_bytes_ = 0;
  bool compacting_ = false;
  Rarely dropped_;
  Rarely refused_;
  control::asio::thread_pool disk_{1};
};

}  // namespace ckpt::coordinator
