// SPDX-License-Identifier: Apache-2.0
// The coordinator's driver of moves of ranks (libckpt/protocol/gang): its machines and journal on a MachineRunner, with a
// queue for each move.
//
// Threads: the event loop; the journal is the disk thread's. Ownership: owns machines, journal, timers and that thread;
// borrows the effects. Its end waits for the records that are being written.
// Errors: the runner's (libckpt/runner/machine_runner.h).
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

// Every call returns at once.
class GangSwitchEffects {
 public:
  virtual ~GangSwitchEffects() = default;
  virtual void send(const gang::GangInfo& info, const gang::Send& sent) = 0;
  // All ranks are to be held at one step.
  virtual void gather(const gang::GangInfo& info) = 0;
  // No instance of the gang is left: only its images are.
  virtual void restore(const gang::GangInfo& info) = 0;
  // Something of the machine may have changed.
  virtual void handled(MigrationId id) = 0;
  // BEGUN was refused: there is no move.
  virtual void not_begun(MigrationId id, const Error& error) = 0;
  [[nodiscard]] virtual std::chrono::milliseconds duration(MigrationId id,
                                                           const gang::ArmTimer& timer) const = 0;
};

struct GangSwitchTypes : gang::MachineTypes {
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

class GangSwitchDriver : private runner::Protocol<GangSwitchTypes> {
 public:
  GangSwitchDriver(control::asio::any_io_executor executor, gang::GangJournal journal, gang::Timing timing,
                   GangSwitchEffects& effects, std::function<void(const Error&)> fatal);
  ~GangSwitchDriver() override;
  GangSwitchDriver(const GangSwitchDriver&) = delete;
  GangSwitchDriver& operator=(const GangSwitchDriver&) = delete;

  // Once, before agents may connect. The machines go on once the loop runs: their owner's tables come after them.
  Result<void> restore();
  void begin(gang::GangInfo info);
  // A move of which no record is left: its ranks are asked.
  void recover(gang::GangInfo info);
  void on_message(MigrationId id, gang::Party from, gang::Body body);
  void on_event(MigrationId id, gang::CoordinatorEvent event) { runner_.enqueue(id, std::move(event)); }
  // Returns when all is done that came for the move up to now.
  control::Task<> caught_up(MigrationId id) { return runner_.caught_up(id); }
  // The move is settled: nobody will ask about it.
  void forget(MigrationId id);

  [[nodiscard]] const gang::CoordinatorState* find(MigrationId id) const;
  [[nodiscard]] const std::map<MigrationId, gang::CoordinatorState>& all() const { return machines_; }

 private:
  // runner::Protocol.
  [[nodiscard]] std::uint64_t queue_of(MigrationId migration) const override { return migration; }
  Result<runner::Step<Batch>> step(MigrationId id, const Event& event) override;
  [[nodiscard]] Event timer_fired(const Key& key, Timer timer) const override;
  Result<Batches> record_refused(const Batch& batch, const Record& record, const Error& error) override;
  Result<void> append(const Batch& batch, const Record& record) override;
  void appended(const Batch& batch, const Record& record) override;
  void perform(const Batch& batch, const Action& action) override;
  [[nodiscard]] std::chrono::milliseconds duration(const Batch& batch,
                                                   const gang::ArmTimer& timer) const override;
  void handled(MigrationId id, const Event* event, const Result<void>& outcome) override;
  [[nodiscard]] std::string name_of(const Record& record) const override;

  // The machine's state becomes what the event leads to from `from`.
  Result<Batches> advance(MigrationId id, const gang::CoordinatorState& from, const Event& event);
  control::Task<> compact(MigrationId without);

  control::asio::any_io_executor executor_;
  gang::GangJournal journal_;
  gang::Timing timing_;
  GangSwitchEffects& effects_;
  std::map<MigrationId, gang::CoordinatorState> machines_;
  std::map<MigrationId, gang::CoordinatorState>
      before_;  // the event at hand: where a refused record leads back to
  control::asio::thread_pool disk_{1};
  runner::MachineRunner<GangSwitchTypes> runner_;
};

}  // namespace ckpt::coordinator
