// SPDX-License-Identifier: Apache-2.0
// The coordinator's driver of the switch (libckpt/protocol/handover/driver.md): its machines and journal on a
// MachineRunner, with a queue for each migration. The journal is compacted when it is large and has doubled since, and once
// the store is durable with the facts of the forgotten records.
//
// Threads: the event loop; the journal is the disk thread's. Ownership: owns machines, journal, timers and
// that thread; borrows the effects. Its end waits for the records that are being written.
// Errors: the runner's (machine_runner.h).
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
#include "libckpt/protocol/handover/coordinator_switches.h"
#include "libckpt/protocol/handover/journal.h"
#include "libckpt/protocol/handover/machine_types.h"
#include "libckpt/runner/machine_runner.h"

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
  virtual void not_begun(migration::MigrationId id, const Error& error) = 0;
  // All that an event led to is done.
  virtual void handled(migration::MigrationId id) = 0;
  [[nodiscard]] virtual std::chrono::milliseconds duration(migration::MigrationId id,
                                                           const migration::ArmTimer& timer) const = 0;
  // True for records that need not stay. Returned once the facts that replace them are durable.
  using Forget = std::function<bool(const migration::Record&)>;
  virtual control::Task<Result<Forget>> forgettable() = 0;
};

struct SwitchTypes : migration::MachineTypes {
  using Event = std::variant<wire::CommitMessage, migration::CoordinatorEvent>;
};

class SwitchDriver : private runner::Protocol<SwitchTypes> {
 public:
  SwitchDriver(control::asio::any_io_executor executor, migration::Journal journal, migration::Timing timing,
               SwitchEffects& effects, std::function<void(const Error&)> fatal);
  ~SwitchDriver() override;
  SwitchDriver(const SwitchDriver&) = delete;
  SwitchDriver& operator=(const SwitchDriver&) = delete;

  // As the journal was opened: before the first event.
  [[nodiscard]] std::vector<migration::Record> records() const { return journal_.records(); }
  // Once, before all else.
  Result<void> restore(const std::vector<migration::Record>& records);

  // Its record is written with space reserved for the rest of the migration. Refused without it: not_begun().
  Result<void> begin(migration::SwitchInfo info, bool source_connected, bool target_connected);
  Result<void> recover(migration::SwitchInfo info);
  // A message of a node. It is dropped while kMaxQueued of them wait for a record of the migration: nodes send it again.
  static constexpr std::size_t kMaxQueued = 32;
  void on_message(wire::CommitMessage message);
  void on_event(migration::MigrationId id, migration::CoordinatorEvent event) {
    runner_.enqueue(id, std::move(event));
  }
  // Returns when all is done that the event leads to, or with why it cannot be.
  control::Task<Result<void>> handle(migration::MigrationId id, migration::CoordinatorEvent event);
  // Returns when all is done that came for the migration up to now.
  control::Task<> caught_up(migration::MigrationId id) { return runner_.caught_up(id); }

  // A copy of the records up to now.
  control::Task<Result<migration::Journal::Copy>> copy_journal();
  void forget(migration::MigrationId id);
  // Something that came for it is not done.
  [[nodiscard]] bool is_busy(migration::MigrationId id) const { return runner_.is_busy(id); }
  [[nodiscard]] std::size_t waiting(migration::MigrationId id) const { return runner_.waiting(id); }
  [[nodiscard]] const migration::CoordinatorSwitches& switches() const noexcept { return switches_; }

 private:
  // runner::Protocol.
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
  void handled(wire::MigrationId id, const Event* event, const Result<void>& outcome) override;
  [[nodiscard]] std::string name_of(const Record& record) const override;

  void compact_if_large();
  control::Task<> compact();

  control::asio::any_io_executor executor_;
  migration::Journal journal_;
  migration::CoordinatorSwitches switches_;
  SwitchEffects& effects_;
  std::atomic<std::uint64_t> journal_bytes_;  // as the disk thread last reported
  std::uint64_t compact_at_bytes_;
  bool compacting_ = false;
  control::asio::thread_pool disk_{1};
  runner::MachineRunner<SwitchTypes> runner_;
};

}  // namespace ckpt::coordinator
