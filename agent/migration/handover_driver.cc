// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/handover_driver.h"

#include <spdlog/spdlog.h>

#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {
namespace {

using migration::Action;
using migration::Batch;
using migration::Batches;
using migration::RecordKind;
using wire::Party;

std::string name_of_key(const migration::SwitchKey& key) {
  return wire::migration_text(key.migration) + "/" + std::string(wire::to_string(key.role));
}

// Crash points between taking an event and handing it to its machine.
void fault_before(const wire::SwitchMessage& message) {
  if (message.to == Party::kSource && std::holds_alternative<wire::Runs>(message.body)) {
    fault_point(FaultPoint::kSourceReceivedRuns);
  }
}
void fault_before(const migration::SourceEvent& event) {
  if (std::holds_alternative<migration::FirstRoundDone>(event)) fault_point(FaultPoint::kSourcePrecopy);
  if (std::holds_alternative<migration::JobPaused>(event)) fault_point(FaultPoint::kSourcePaused);
  if (std::holds_alternative<migration::FinalDataAcknowledged>(event))
    fault_point(FaultPoint::kSourceFinalSent);
}
void fault_before(const migration::TargetEvent& event) {
  if (std::holds_alternative<migration::FinalVerified>(event)) fault_point(FaultPoint::kTargetVerified);
  if (std::holds_alternative<migration::InstanceRuns>(event)) fault_point(FaultPoint::kTargetRuns);
}

void fault_after_record(RecordKind kind) {
  switch (kind) {
    case RecordKind::kBarrier:
      return fault_point(FaultPoint::kSourceBarrierDurable);
    case RecordKind::kReleased:
      return fault_point(FaultPoint::kSourceReleasedDurable);
    case RecordKind::kCommitted:
      return fault_point(FaultPoint::kTargetCommittedDurable);
    default:
      return;
  }
}

}  // namespace

HandoverDriver::HandoverDriver(asio::io_context& io, asio::thread_pool& disk, migration::Journal journal,
                               migration::Timing timing, HandoverEffects& effects,
                               std::function<void(Error)> fatal)
    : io_(io),
      disk_(disk),
      journal_(std::move(journal)),
      switches_(timing),
      effects_(effects),
      fatal_(std::move(fatal)) {}

Task<Result<void>> HandoverDriver::restore() {
  auto batches = switches_.restore(journal_.records(), now_ns());
  if (!batches) co_return std::move(batches).assume_error();
  draining_ = true;  // what arrives meanwhile waits
  co_await execute(std::move(batches).assume_value());
  co_await drain();
  co_return ok();
}

void HandoverDriver::on_message(wire::SwitchMessage message) {
  const wire::MigrationId id = message.migration;
  if (!queue_.put_heard(std::move(message))) {
    if (const auto left_out = dropped_.turn(now_ns()))
      spdlog::warn("too many switch messages wait, one was dropped: id {} waiting {} left out {}",
                   wire::migration_text(id), queue_.size(), *left_out);
  }
  drain_if_idle();
}

void HandoverDriver::on_own_message(wire::SwitchMessage message) {
  enqueue(Item(std::move(message)));
}

void HandoverDriver::on_event(migration::SwitchKey key, migration::SourceEvent event) {
  enqueue(Item(HandoverQueue::SourceItem{key, std::move(event)}));
}

void HandoverDriver::on_event(migration::SwitchKey key, migration::TargetEvent event) {
  enqueue(Item(HandoverQueue::TargetItem{key, std::move(event)}));
}

void HandoverDriver::ask_again() {
  std::vector<TimerKey> due;
  for (const auto& [key, armed] : timers_) {
    if (key.second == migration::Timer::kPoll || key.second == migration::Timer::kLease) due.push_back(key);
  }
  for (const auto& [key, timer] : due) {
    timers_.erase(TimerKey(key, timer));
    fire(key, timer);
  }
}

void HandoverDriver::forget(wire::JobId job) {
  enqueue(Item(HandoverQueue::ForgetItem{job}));
}

Task<> HandoverDriver::compact_without(wire::JobId job) {
  switches_.forget(job);
  auto compacted = co_await offload(disk_, [this, job] {
    return journal_.compact([job](const migration::Record& record) { return record.info.job == job; });
  });
  if (!compacted) spdlog::warn("journal not compacted: reason {}", compacted.assume_error().to_string());
}

void HandoverDriver::enqueue(Item item) {
  queue_.put_own(std::move(item));
  drain_if_idle();
}

void HandoverDriver::drain_if_idle() {
  if (draining_) return;
  draining_ = true;
  control::spawn(io_.get_executor(), "switch events", drain());
}

Task<> HandoverDriver::drain() {
  while (!queue_.empty()) {
    Item item = queue_.take();
    co_await take(std::move(item));
  }
  draining_ = false;
}

Result<Batches> HandoverDriver::feed(const Item& item) {
  const Nanos now = now_ns();
  if (const auto* message = std::get_if<wire::SwitchMessage>(&item)) {
    fault_before(*message);
    return switches_.on_message(*message, now);
  }
  if (const auto* source = std::get_if<HandoverQueue::SourceItem>(&item)) {
    fault_before(source->event);
    return switches_.on_event(source->key, source->event, now);
  }
  const auto& target = std::get<HandoverQueue::TargetItem>(item);
  fault_before(target.event);
  return switches_.on_event(target.key, target.event, now);
}

Task<> HandoverDriver::take(Item item) {
  if (const auto* forget = std::get_if<HandoverQueue::ForgetItem>(&item))
    co_return co_await compact_without(forget->job);
  if (const auto* message = std::get_if<wire::SwitchMessage>(&item)) {
    if (std::holds_alternative<wire::Prepare>(message->body)) {
      if (!co_await has_room_for(*message)) co_return;
    }
  }
  auto batches = feed(item);
  if (!batches) {
    if (const auto left_out = refused_.turn(now_ns()))
      spdlog::warn("switch event refused: reason {} left out {}", batches.assume_error().to_string(),
                   *left_out);
    co_return;
  }
  co_await execute(std::move(batches).assume_value());
  if (const auto* target = std::get_if<HandoverQueue::TargetItem>(&item)) {
    if (std::holds_alternative<migration::InstanceRuns>(target->event))
      fault_point(FaultPoint::kTargetRunsStated);
  }
}

Task<bool> HandoverDriver::has_room_for(const wire::SwitchMessage& message) {
  const auto* prepare = std::get_if<wire::Prepare>(&message.body);
  const std::uint64_t bytes = migration::Journal::reserve_for(prepare == nullptr ? 0 : prepare->plan.size());
  const auto reserve = [this, bytes] { return journal_.reserve(bytes); };
  auto reserved = co_await offload(disk_, reserve);
  if (reserved) co_return true;
  const Error& error = reserved.assume_error();
  spdlog::error("migration refused: id {} reason {}", message.migration, error.to_string());
  const Error why = Error(ErrorCode::kRefused, "No room for the journal").caused_by(error);
  const wire::SwitchMessage answer(message.migration, message.job, message.base, message.to,
                                   Party::kCoordinator, wire::SwitchBody(wire::Refused(wire::Reason(why))));
  effects_.send(migration::SwitchKey{message.migration, message.to},
                migration::SwitchInfo(message.migration, message.job, message.base, {}, {}), answer);
  co_return false;
}

Task<> HandoverDriver::execute(Batches batches) {
  std::deque<Batch> todo(std::make_move_iterator(batches.begin()), std::make_move_iterator(batches.end()));
  while (!todo.empty()) {
    const Batch batch = std::move(todo.front());
    todo.pop_front();
    for (const Action& action : batch.actions) {
      const auto* write_record = std::get_if<migration::WriteRecord>(&action);
      if (!write_record) {
        perform(batch, action);
        continue;
      }
      Batches answer;
      if (co_await write(batch, write_record->record, answer)) continue;
      todo.insert(todo.begin(), std::make_move_iterator(answer.begin()),
                  std::make_move_iterator(answer.end()));
      break;
    }
  }
}

Task<bool> HandoverDriver::write(const Batch& batch, const migration::Record& record, Batches& out) {
  auto written = co_await offload(disk_, [this, &record] { return journal_.append(record); });
  if (written) {
    fault_after_record(record.kind);
    co_return true;
  }
  const Error& error = written.assume_error();
  if (error.code() != ErrorCode::kRefused) {
    fatal_(Error(ErrorCode::kIo, "A journal record's fate is unknown").caused_by(error));
    co_return false;
  }
  spdlog::error("journal record refused: switch {} record {} reason {}", name_of_key(batch.key),
                migration::to_string(record.kind), error.to_string());
  auto answer = switches_.record_failed(batch.key, wire::Reason(error), now_ns());
  if (answer) {
    out = std::move(answer).assume_value();
  } else {
    spdlog::error("switch cannot take a refused record: switch {} reason {}", name_of_key(batch.key),
                  answer.assume_error().to_string());
  }
  co_return false;
}

void HandoverDriver::perform(const Batch& batch, const Action& action) {
  if (const auto* send = std::get_if<migration::Send>(&action)) {
    const wire::SwitchMessage message(batch.info.migration, batch.info.job, batch.info.base, send->from,
                                      send->to, send->body);
    return effects_.send(batch.key, batch.info, message);
  }
  if (const auto* timer = std::get_if<migration::ArmTimer>(&action)) return arm(batch.key, *timer);
  if (const auto* timer = std::get_if<migration::DisarmTimer>(&action)) {
    timers_.erase(TimerKey(batch.key, timer->timer));
    return;
  }
  if (const auto* report = std::get_if<migration::Report>(&action)) {
    return effects_.report(batch.key, batch.info, *report);
  }
  if (std::holds_alternative<migration::PrepareSource>(action)) fault_point(FaultPoint::kSourcePreparing);
  if (std::holds_alternative<migration::PrepareStandby>(action)) fault_point(FaultPoint::kTargetPreparing);
  effects_.perform(batch.key, batch.info, action);
  if (std::holds_alternative<migration::StartReceiving>(action)) fault_point(FaultPoint::kTargetPrecopy);
}

void HandoverDriver::arm(const migration::SwitchKey& key, const migration::ArmTimer& action) {
  ArmedTimer& armed = timers_[TimerKey(key, action.timer)];
  // A timer that has fired already cannot be cancelled any more: the generation tells its handler apart.
  armed.generation = next_generation_++;
  armed.timer = std::make_unique<asio::steady_timer>(io_, std::chrono::milliseconds(action.ms));
  armed.timer->async_wait([this, key, which = action.timer, generation = armed.generation](auto error) {
    if (error) return;
    auto it = timers_.find(TimerKey(key, which));
    if (it == timers_.end() || it->second.generation != generation) return;
    timers_.erase(it);
    fire(key, which);
  });
}

void HandoverDriver::fire(const migration::SwitchKey& key, migration::Timer timer) {
  if (key.role == Party::kSource) {
    on_event(key, migration::SourceEvent(migration::TimerFired(timer)));
  } else {
    on_event(key, migration::TargetEvent(migration::TimerFired(timer)));
  }
}

}  // namespace ckpt::agent
