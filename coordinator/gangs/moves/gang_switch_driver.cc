// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gangs/moves/gang_switch_driver.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "libckpt/base/clock.h"
#include "libckpt/base/fault.h"
#include "libckpt/net/control/offload.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

constexpr std::size_t kMaxMessages = 4096;
constexpr std::chrono::seconds kLook{1};  // a notification ends the waiting before

void fault_after_record(gang::RecordKind kind) {
  if (kind == gang::RecordKind::kBegun) fault_point(FaultPoint::kCoordinatorBegun);
  if (kind == gang::RecordKind::kGranted) fault_point(FaultPoint::kCoordinatorGrantedDurable);
  if (kind == gang::RecordKind::kClosed) fault_point(FaultPoint::kCoordinatorClosedDurable);
  if (kind == gang::RecordKind::kAborted) fault_point(FaultPoint::kCoordinatorAbortedDurable);
}

}  // namespace

GangSwitchDriver::GangSwitchDriver(control::asio::any_io_executor executor, gang::GangJournal journal,
                                   gang::Timing timing, GangSwitchEffects& effects,
                                   std::function<void(const Error&)> fatal)
    : executor_(std::move(executor)),
      journal_(std::move(journal)),
      timing_(timing),
      effects_(effects),
      fatal_(std::move(fatal)),
      idle_(executor_) {}

GangSwitchDriver::~GangSwitchDriver() {
  disk_.join();
}

Result<void> GangSwitchDriver::restore() {
  std::map<MigrationId, gang::Record> newest;
  for (gang::Record& record : journal_.records()) {
    const MigrationId id = record.info.migration;
    newest.insert_or_assign(id, std::move(record));
  }
  for (const auto& [id, record] : newest) {
    CKPT_TRY(state, gang::restore_coordinator(record));
    machines_.insert_or_assign(id, std::move(state));
    put(id, gang::Restarted{});
  }
  return ok();
}

void GangSwitchDriver::begin(gang::GangInfo info) {
  const MigrationId id = info.migration;
  machines_.insert_or_assign(id, gang::begin(std::move(info), now_ns()));
  put(id, gang::MigrateRequested{});
}

void GangSwitchDriver::recover(gang::GangInfo info) {
  const MigrationId id = info.migration;
  machines_.insert_or_assign(id, gang::recover_coordinator(std::move(info), now_ns()));
  put(id, gang::Restarted{});
}

void GangSwitchDriver::on_message(MigrationId id, gang::Party from, gang::Body body) {
  if (messages_ >= kMaxMessages) {
    if (const auto left_out = dropped_.turn(now_ns()))
      spdlog::warn("move of ranks {}: too many messages wait, one was dropped, {} left out",
                   migration_text(id), *left_out);
    return;
  }
  ++messages_;
  put(id, gang::Message(from, std::move(body)));
}

void GangSwitchDriver::on_event(MigrationId id, gang::CoordinatorEvent event) {
  put(id, std::move(event));
}

const gang::CoordinatorState* GangSwitchDriver::find(MigrationId id) const {
  const auto at = machines_.find(id);
  return at == machines_.end() ? nullptr : &at->second;
}

control::Task<> GangSwitchDriver::caught_up() {
  while (is_draining_) co_await idle_.wait_until(std::chrono::steady_clock::now() + kLook);
}

void GangSwitchDriver::put(MigrationId id, gang::CoordinatorEvent event) {
  Item& item = queue_.emplace_back();
  item.id = id;
  item.event = std::move(event);
  if (std::exchange(is_draining_, true)) return;
  control::spawn(executor_, "moves of ranks", drain());
}

control::Task<> GangSwitchDriver::drain() {
  while (!queue_.empty()) {
    Item item = std::move(queue_.front());
    queue_.pop_front();
    if (std::holds_alternative<gang::Message>(item.event)) --messages_;
    co_await take(std::move(item));
  }
  is_draining_ = false;
  idle_.notify();
}

control::Task<> GangSwitchDriver::take(Item item) {
  const auto at = machines_.find(item.id);
  if (at == machines_.end()) co_return;
  auto next = gang::step(at->second, item.event, now_ns(), timing_);
  if (!next) {
    if (const auto left_out = refused_.turn(now_ns()))
      spdlog::warn("move of ranks {}: {} ({} left out)", migration_text(item.id),
                   next.assume_error().to_string(), *left_out);
    co_return;
  }
  auto& step = next.assume_value();
  gang::CoordinatorState before = std::exchange(at->second, std::move(step.state));
  std::vector<gang::Action> actions = std::move(step.actions);
  co_await execute(item.id, std::move(before), std::move(actions));
  effects_.handled(item.id);
}

control::Task<> GangSwitchDriver::execute(MigrationId id, gang::CoordinatorState before,
                                          std::vector<gang::Action> actions) {
  for (std::size_t next = 0; next < actions.size();) {
    const gang::Action& action = actions[next++];
    const auto* record = std::get_if<gang::WriteRecord>(&action);
    if (record == nullptr) {
      perform(id, action);
      continue;
    }
    auto written = co_await write(record->record);
    if (written) {
      spdlog::info("move of ranks {}: {}", migration_text(id), gang::name_of(record->record));
      fault_after_record(record->record.kind);
      continue;
    }
    const Error& error = written.assume_error();
    if (error.code() != ErrorCode::kRefused) {
      fatal_(error);
      co_return;
    }
    spdlog::error("move of ranks {}: record {} refused: {}", migration_text(id),
                  gang::name_of(record->record), error.to_string());
    if (record->record.kind == gang::RecordKind::kBegun) {
      machines_.erase(id);
      effects_.not_begun(id, error);
      co_return;
    }
    machines_.insert_or_assign(id, before);
    auto again = gang::step(before, gang::RecordFailed(wire::Reason(error)), now_ns(), timing_);
    if (!again) co_return;
    machines_.insert_or_assign(id, std::move(again.assume_value().state));
    actions = std::move(again.assume_value().actions);
    next = 0;
  }
}

control::Task<Result<void>> GangSwitchDriver::write(const gang::Record& record) {
  const auto append = [this, &record]() -> Result<void> {
    if (record.kind == gang::RecordKind::kBegun || record.kind == gang::RecordKind::kGranted) {
      CKPT_TRYV(journal_.reserve(gang::GangJournal::reserve_for(record.info.plan.size())));
    }
    return journal_.append(record);
  };
  co_return co_await control::offload(disk_, append);
}

void GangSwitchDriver::perform(MigrationId id, const gang::Action& action) {
  const gang::GangInfo info = machines_.at(id).info;
  if (const auto* sent = std::get_if<gang::Send>(&action)) return effects_.send(info, *sent);
  if (const auto* timer = std::get_if<gang::ArmTimer>(&action)) return arm(id, *timer);
  if (const auto* timer = std::get_if<gang::DisarmTimer>(&action)) {
    timers_.erase({id, timer->timer});
    return;
  }
  if (std::holds_alternative<gang::GatherRanks>(action)) return effects_.gather(info);
  if (std::holds_alternative<gang::RestoreGang>(action)) return effects_.restore(info);
}

void GangSwitchDriver::arm(MigrationId id, const gang::ArmTimer& action) {
  auto timer = std::make_shared<control::asio::steady_timer>(executor_, effects_.duration(id, action));
  // Replacing the entry destroys an armed one, which cancels it.
  timers_[{id, action.timer}] = timer;
  timer->async_wait([this, id, kind = action.timer, raw = timer.get()](boost::system::error_code code) {
    if (code) return;
    const auto at = timers_.find({id, kind});
    if (at == timers_.end() || at->second.get() != raw) return;  // fired, but replaced before this ran
    timers_.erase(at);
    on_event(id, gang::TimerFired(kind));
  });
}

void GangSwitchDriver::forget(MigrationId id) {
  machines_.erase(id);
  for (auto timer = timers_.lower_bound({id, gang::Timer{}});
       timer != timers_.end() && timer->first.first == id;)
    timer = timers_.erase(timer);
  control::spawn(executor_, "compacting the journal of moves of ranks", compact(id));
}

control::Task<> GangSwitchDriver::compact(MigrationId without) {
  const auto rewrite = [this, without] {
    return journal_.compact(
        [without](const gang::Record& record) { return record.info.migration == without; });
  };
  auto compacted = co_await control::offload(disk_, rewrite);
  if (!compacted)
    spdlog::warn("the journal of moves of ranks was not compacted: {}", compacted.assume_error().to_string());
}

}  // namespace ckpt::coordinator
