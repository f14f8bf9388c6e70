// SPDX-License-Identifier: Apache-2.0
// The coordinator's driver of the handover (libckpt/protocol/handover/driver.md). It runs the state machines
// and their journal on a MachineRunner, with a queue for each migration. The journal is compacted when it is
// large and has doubled since the last compaction. Before that, the store must be durable with the facts of
// the removed records.
//
// Threads: the event loop; only the disk thread uses the journal. Ownership: owns machines, journal, timers
// and the disk thread; borrows the effects. The destructor waits for records that are being written. Errors:
// the runner's (machine_runner.h).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "libckpt/net/control/asio.h"
#include "libckpt/protocol/handover/coordinator_handovers.h"
#include "libckpt/protocol/handover/journal.h"
#include "libckpt/protocol/handover/machine_types.h"
#include "libckpt/runner/machine_runner.h"

namespace ckpt::coordinator {

// The actions that the machines request from their owner. They are called on the loop, and may put events
// into the driver.
class HandoverEffects {
 public:
  virtual ~HandoverEffects() = default;
  // Reports that the event is about to be passed to its machine.
  virtual void before_event(migration::MigrationId id, const migration::CoordinatorEvent& event) = 0;
  virtual void send(const migration::HandoverInfo& info, const migration::Send& message) = 0;
  virtual void report(const migration::HandoverInfo& info, const migration::Report& report) = 0;
  // Reports that the journal refused the record BEGUN. Nothing was changed, and no state machine exists.
  virtual void on_begin_refused(migration::MigrationId id, const Error& error) = 0;
  // Reports that all consequences of an event have been processed.
  virtual void on_event_done(migration::MigrationId id) = 0;
  [[nodiscard]] virtual std::chrono::milliseconds duration(migration::MigrationId id,
                                                           const migration::ArmTimer& timer) const = 0;
  // A function that returns true for records that the journal may remove. forgettable() returns it once the
  // facts that replace the records are durable.
  using Forget = std::function<bool(const migration::Record&)>;
  virtual control::Task<Result<Forget>> forgettable() = 0;
};

struct HandoverTypes : migration::MachineTypes {
  using Event = std::variant<wire::CommitMessage, migration::CoordinatorEvent>;
};

class HandoverDriver : private runner::Protocol<HandoverTypes> {
 public:
  HandoverDriver(control::asio::any_io_executor executor, migration::Journal journal,
                 migration::Timing timing, HandoverEffects& effects, std::function<void(const Error&)> fatal);
  ~HandoverDriver() override;
  HandoverDriver(const HandoverDriver&) = delete;
  HandoverDriver& operator=(const HandoverDriver&) = delete;

  // Returns the records that the journal had when it was opened. Call this before the first event.
  [[nodiscard]] std::vector<migration::Record> records() const { return journal_.records(); }
  // Restores the machines. Call this once, before all other functions.
  Result<void> restore(const std::vector<migration::Record>& records);

  // Begins a handover. Its record is written with space reserved for the rest of the migration. Without that
  // space, the handover is refused: on_begin_refused().
  Result<void> begin(migration::HandoverInfo info, bool source_connected, bool target_connected);
  Result<void> recover(migration::HandoverInfo info);
  // Handles a message of a node. The message is dropped while kMaxQueued messages wait for a record of the
  // migration. Nodes send it again.
  static constexpr std::size_t kMaxQueued = 32;
  void on_message(wire::CommitMessage message);
  void on_event(migration::MigrationId id, migration::CoordinatorEvent event) {
    runner_.enqueue(id, std::move(event));
  }
  // Handles an event. Returns when all its consequences are done, or with the reason why it cannot be
  // handled.
  control::Task<Result<void>> handle(migration::MigrationId id, migration::CoordinatorEvent event);
  // Waits until all events that arrived for the migration so far have been processed.
  control::Task<> caught_up(migration::MigrationId id) { return runner_.caught_up(id); }

  // Returns a copy of the journal's records up to now.
  control::Task<Result<migration::Journal::Copy>> copy_journal();
  void forget(migration::MigrationId id);
  // Returns whether an event for the migration has not been processed yet.
  [[nodiscard]] bool is_busy(migration::MigrationId id) const { return runner_.is_busy(id); }
  [[nodiscard]] std::size_t waiting(migration::MigrationId id) const { return runner_.waiting(id); }
  [[nodiscard]] const migration::CoordinatorHandovers& handovers() const noexcept { return handovers_; }

 private:
  // These functions implement runner::Protocol.
  [[nodiscard]] std::uint64_t queue_of(wire::MigrationId migration) const override { return migration; }
  Result<runner::Step<Batch>> step(wire::MigrationId id, const Event& event) override;
  [[nodiscard]] Event timer_fired(const Key& key, Timer timer) const override;
  Result<Batches> record_refused(const Batch& batch, const Record& record, const Error& error) override;
  Result<void> append(const Batch& batch, const Record& record) override;
  void appended(const Batch& batch, const Record& record) override;
  void perform(const Batch& batch, const Action& action) override;
  [[nodiscard]] std::chrono::milliseconds duration(const Batch& batch,
                                                   const migration::ArmTimer& timer) const override;
  void executed(const Batch& batch) override;
  void on_event_done(wire::MigrationId id, const Event* event, const Result<void>& outcome) override;
  [[nodiscard]] std::string name_of(const Record& record) const override;

  void compact_if_large();
  control::Task<> compact();

  control::asio::any_io_executor executor_;
  migration::Journal journal_;
  migration::CoordinatorHandovers handovers_;
  HandoverEffects& effects_;
  std::atomic<std::uint64_t> journal_bytes_;  // the journal's size, as the disk thread last reported it
  std::uint64_t compact_at_bytes_;
  bool compacting_ = false;
  control::asio::thread_pool disk_{1};
  runner::MachineRunner<HandoverTypes> runner_;
};

}  // namespace ckpt::coordinator
