// SPDX-License-Identifier: Apache-2.0
// Runs the coordinator's machines of moves of ranks (libckpt/protocol/gang): one queue, one journal, the timers. As
// SwitchDriver does for jobs of one rank. A record is durable before the next action.
//
// Threads: one io_context on one thread; the journal is touched by a thread of its own, one call at a time. Ownership: owns
// machines, journal and timers. Errors: a record that is refused cleanly is fed back to its machine; one of unknown fate
// calls `fatal`.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <variant>
#include <vector>

#include "coordinator/state/model.h"
#include "coordinator/state/signal.h"
#include "libckpt/base/rarely.h"
#include "libckpt/net/control/asio.h"
#include "libckpt/protocol/gang/gang_coordinator.h"
#include "libckpt/protocol/gang/gang_messages.h"

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
  virtual void not_begun(MigrationId id, const Error& why) = 0;
  [[nodiscard]] virtual std::chrono::milliseconds duration(MigrationId id,
                                                           const gang::ArmTimer& timer) const = 0;
};

class GangSwitchDriver {
 public:
  GangSwitchDriver(control::asio::any_io_executor executor, gang::GangJournal journal, gang::Timing timing,
                   GangSwitchEffects& effects, std::function<void(const Error&)> fatal);
  ~GangSwitchDriver();
  GangSwitchDriver(const GangSwitchDriver&) = delete;
  GangSwitchDriver& operator=(const GangSwitchDriver&) = delete;

  // Once, before agents may connect.
  Result<void> restore();
  void begin(gang::GangInfo info);
  // A move of which no record is left: its ranks are asked.
  void recover(gang::GangInfo info);
  void on_message(MigrationId id, gang::Party from, gang::Body body);
  void on_event(MigrationId id, gang::CoordinatorEvent event);
  // Returns when all requests and messages up to now are handled.
  control::Task<> caught_up();
  // Of moves that are settled: nobody will ask about them.
  void forget(MigrationId id);

  [[nodiscard]] const gang::CoordinatorState* find(MigrationId id) const;
  [[nodiscard]] const std::map<MigrationId, gang::CoordinatorState>& all() const { return machines_; }

 private:
  struct Item {
    MigrationId id = 0;
    gang::CoordinatorEvent event;
  };

  void put(MigrationId id, gang::CoordinatorEvent event);
  control::Task<> drain();
  control::Task<> take(Item item);
  control::Task<> execute(MigrationId id, gang::CoordinatorState before, std::vector<gang::Action> actions);
  control::Task<Result<void>> write(const gang::Record& record);
  void perform(MigrationId id, const gang::Action& action);
  void arm(MigrationId id, const gang::ArmTimer& action);
  control::Task<> compact(MigrationId without);

  control::asio::any_io_executor executor_;
  gang::GangJournal journal_;
  gang::Timing timing_;
  GangSwitchEffects& effects_;
  std::function<void(const Error&)> fatal_;
  std::map<MigrationId, gang::CoordinatorState> machines_;
  std::deque<Item> queue_;
  std::size_t messages_ = 0;  // that wait
  bool is_draining_ = false;
  Signal idle_;
  std::map<std::pair<MigrationId, gang::Timer>, std::shared_ptr<control::asio::steady_timer>> timers_;
  Rarely dropped_;
  Rarely refused_;
  control::asio::thread_pool disk_{1};
};

}  // namespace ckpt::coordinator
