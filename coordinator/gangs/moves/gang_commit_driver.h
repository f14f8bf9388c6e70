// SPDX-License-Identifier: Apache-2.0
// The coordinator's driver of moves of ranks (libckpt/protocol/gang). It runs the state machines and their
// journal on a MachineRunner, with a queue for each move.
//
// Threads: the event loop; only the disk thread uses the journal. Ownership: owns machines, journal, timers
// and the disk thread; borrows the effects. The destructor waits for records that are being written. Errors:
// the runner's (libckpt/runner/machine_runner.h).
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/state/model.h"
#include "libckpt/net/control/asio.h"
#include "libckpt/protocol/gang/gang_coordinator.h"
#include "libckpt/protocol/gang/gang_records.h"
#include "libckpt/protocol/gang/machine_types.h"
#include "libckpt/runner/machine_runner.h"

namespace ckpt::coordinator {

// The actions that the driver requests from its owner. Every function returns at once.
class GangHandoverEffects {
 public:
  virtual ~GangHandoverEffects() = default;
  virtual void send(const gang::GangInfo& info, const gang::Send& sent) = 0;
  // Begins to hold all ranks at one step.
  virtual void gather(const gang::GangInfo& info) = 0;
  // Reports that no instance of the gang is left. Only its images remain.
  virtual void restore(const gang::GangInfo& info) = 0;
  // Reports that the state of the machine may have changed.
  virtual void on_event_done(MigrationId id) = 0;
  // Reports that the record BEGUN was refused, so that there is no move.
  virtual void on_begin_refused(MigrationId id, const Error& error) = 0;
  [[nodiscard]] virtual std::chrono::milliseconds duration(MigrationId id,
                                                           const gang::ArmTimer& timer) const = 0;
};

struct GangHandoverTypes : gang::MachineTypes {
  struct Key {
    MigrationId migration = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Batch {
    Key key;
    gang::GangInfo info;
    std::vector<gang::Action> actions;
  };
  using Event = gang::CoordinatorEvent;
};

class GangHandoverDriver : private runner::Protocol<GangHandoverTypes> {
 public:
  GangHandoverDriver(control::asio::any_io_executor executor, gang::GangJournal journal, gang::Timing timing,
                     GangHandoverEffects& effects, std::function<void(const Error&)> fatal);
  ~GangHandoverDriver() override;
  GangHandoverDriver(const GangHandoverDriver&) = delete;
  GangHandoverDriver& operator=(const GangHandoverDriver&) = delete;

  // Restores the machines from the journal. Call this once, before agents may connect. The machines continue
  // once the loop runs, because their owner's tables are loaded later.
  Result<void> restore();
  void begin(gang::GangInfo info);
  // Recovers a move that has no record left. Its ranks are queried.
  void recover(gang::GangInfo info);
  void on_message(MigrationId id, gang::Party from, gang::Body body);
  void on_event(MigrationId id, gang::CoordinatorEvent event) { runner_.enqueue(id, std::move(event)); }
  // Waits until all events that arrived for the move so far have been processed.
  control::Task<> caught_up(MigrationId id) { return runner_.caught_up(id); }
  // Removes a settled move. No party will query the move again.
  void forget(MigrationId id);

  [[nodiscard]] const gang::CoordinatorState* find(MigrationId id) const;
  [[nodiscard]] const std::map<MigrationId, gang::CoordinatorState>& all() const { return machines_; }

 private:
  // These functions implement runner::Protocol.
  [[nodiscard]] std::uint64_t queue_of(MigrationId migration) const override { return migration; }
  Result<runner::Step<Batch>> step(MigrationId id, const Event& event) override;
  [[nodiscard]] Event timer_fired(const Key& key, Timer timer) const override;
  Result<Batches> record_refused(const Batch& batch, const Record& record, const Error& error) override;
  Result<void> append(const Batch& batch, const Record& record) override;
  void appended(const Batch& batch, const Record& record) override;
  void perform(const Batch& batch, const Action& action) override;
  [[nodiscard]] std::chrono::milliseconds duration(const Batch& batch,
                                                   const gang::ArmTimer& timer) const override;
  void on_event_done(MigrationId id, const Event* event, const Result<void>& outcome) override;
  [[nodiscard]] std::string name_of(const Record& record) const override;

  // Applies the event to the state `from`, and stores the resulting state in the machine.
  Result<Batches> advance(MigrationId id, const gang::CoordinatorState& from, const Event& event);
  control::Task<> compact(MigrationId without);

  control::asio::any_io_executor executor_;
  gang::GangJournal journal_;
  gang::Timing timing_;
  GangHandoverEffects& effects_;
  std::map<MigrationId, gang::CoordinatorState> machines_;
  std::map<MigrationId, gang::CoordinatorState>
      before_;  // each machine's state before the current event, which a refused record restores
  control::asio::thread_pool disk_{1};
  runner::MachineRunner<GangHandoverTypes> runner_;
};

}  // namespace ckpt::coordinator
