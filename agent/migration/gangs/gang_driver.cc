// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/gangs/gang_driver.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "libckpt/base/clock.h"
#include "libckpt/base/fault.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {
namespace {

constexpr std::size_t kMaxReceived = 2048;
constexpr std::uint64_t kCompactAboveBytes = 1 << 20;

std::string name_of_key(const gang::PartyKey& key) {
  return wire::migration_text(key.migration) + "/" + gang::to_text(key.party);
}

gang::PartyEvent timer_event(const gang::PartyKey& key, gang::Timer timer) {
  const gang::TimerFired fired(timer);
  switch (key.party.role) {
    case gang::Role::kSource:
      return gang::SourceEvent(fired);
    case gang::Role::kTarget:
      return gang::TargetEvent(fired);
    default:
      return gang::BystanderEvent(fired);
  }
}

void fault_after_record(gang::RecordKind kind) {
  switch (kind) {
    case gang::RecordKind::kBarrier:
      return fault_point(FaultPoint::kSourceBarrierDurable);
    case gang::RecordKind::kReleased:
      return fault_point(FaultPoint::kSourceReleasedDurable);
    case gang::RecordKind::kReady:
      return fault_point(FaultPoint::kTargetReadyDurable);
    case gang::RecordKind::kCommitted:
      return fault_point(FaultPoint::kTargetCommittedDurable);
    case gang::RecordKind::kHeld:
      return fault_point(FaultPoint::kBystanderHeld);
    case gang::RecordKind::kGone:
      return fault_point(FaultPoint::kBystanderGone);
    default:
      return;
  }
}

}  // namespace

GangDriver::GangDriver(Machines machines, GangEffects& effects)
    : io_(machines.io),
      disk_(machines.disk),
      journal_(std::move(machines.journal)),
      parties_(machines.timing),
      effects_(effects),
      fatal_(std::move(machines.fatal)) {}

Task<Result<void>> GangDriver::restore() {
  auto batches = parties_.restore(journal_.records(), now_ns());
  if (!batches) co_return std::move(batches).assume_error();
  is_draining_ = true;  // what arrives meanwhile waits
  co_await execute(std::move(batches).assume_value());
  co_await drain();
  co_return ok();
}

void GangDriver::on_message(gang::GangMessage message) {
  if (received_ >= kMaxReceived) {
    if (const auto left_out = dropped_.turn(now_ns()))
      spdlog::warn("too many messages of moves of ranks wait, one was dropped: id {} left out {}",
                   wire::migration_text(message.migration), *left_out);
    return;
  }
  ++received_;
  put(Received{std::move(message), false});
}

void GangDriver::on_own_message(gang::GangMessage message) {
  put(Received{std::move(message), true});
}

void GangDriver::on_event(const gang::PartyKey& key, gang::PartyEvent event) {
  put(Event{key, std::move(event)});
}

void GangDriver::ask_again() {
  std::vector<TimerKey> due;
  for (const auto& [key, armed] : timers_) {
    if (key.second == gang::Timer::kPoll || key.second == gang::Timer::kLease) due.push_back(key);
  }
  for (const TimerKey& key : due) {
    timers_.erase(key);
    fire(key.first, key.second);
  }
}

void GangDriver::forget(std::function<bool(const gang::GangInfo&)> which) {
  put(Forget{std::move(which)});
}

void GangDriver::put(Item item) {
  queue_.push_back(std::move(item));
  if (std::exchange(is_draining_, true)) return;
  control::spawn(io_.get_executor(), "events of moves of ranks", drain());
}

Task<> GangDriver::drain() {
  while (!queue_.empty()) {
    Item item = std::move(queue_.front());
    queue_.pop_front();
    if (const auto* received = std::get_if<Received>(&item); received != nullptr && !received->is_own)
      --received_;
    co_await take(std::move(item));
  }
  is_draining_ = false;
}

Task<> GangDriver::take(Item item) {
  if (auto* received = std::get_if<Received>(&item))
    co_return co_await take_message(std::move(received->message));
  if (const auto* forget = std::get_if<Forget>(&item)) co_return co_await compact_without(*forget);
  const Event& event = std::get<Event>(item);
  auto batches = parties_.on_event(event.key, event.what, now_ns());
  if (!batches) co_return refuse(batches.assume_error());
  co_await execute(std::move(batches).assume_value());
}

Task<> GangDriver::take_message(gang::GangMessage message) {
  const bool is_new = message.info && parties_.find({message.migration, message.to}) == nullptr;
  if (is_new) {
    const bool has_room = co_await has_room_for(message);
    if (!has_room) co_return;
  }
  auto batches = parties_.on_message(message, now_ns());
  if (!batches) co_return refuse(batches.assume_error());
  std::optional<Batches>& found = batches.assume_value();
  if (!found) co_return effects_.ask_for_info(message);
  // A move begins once the one before it is over everywhere: nobody asks about that any more.
  if (is_new)
    forget([gang = message.gang, now = message.migration](const gang::GangInfo& info) {
      return info.gang == gang && info.migration < now;
    });
  co_await execute(std::move(*found));
  const gang::PartyKey key(message.migration, message.to);
  const gang::PartyState* state = parties_.find(key);
  if (message.asks_for_info && message.from == gang::Party() && state != nullptr)
    effects_.has_stated_all(key, gang::info_of(*state));
}

void GangDriver::refuse(const Error& error) {
  if (const auto left_out = refused_.turn(now_ns()))
    spdlog::warn("event of a move of ranks refused: reason {} left out {}", error.to_string(), *left_out);
}

// Where the disk is full the party is not made: the coordinator asks again, and gives up in the end.
Task<bool> GangDriver::has_room_for(const gang::GangMessage& message) {
  const std::uint64_t bytes = gang::GangJournal::reserve_for(message.info->plan.size());
  const auto reserve = [this, bytes] { return journal_.reserve(bytes); };
  auto reserved = co_await offload(disk_, reserve);
  if (reserved) co_return true;
  spdlog::error("move of ranks refused: id {} reason {}", wire::migration_text(message.migration),
                reserved.assume_error().to_string());
  co_return false;
}

Task<> GangDriver::compact_without(const Forget& forget) {
  std::set<wire::MigrationId> over;
  for (const auto& [key, state] : parties_.all())
    if (forget.which(gang::info_of(state))) over.insert(key.migration);
  for (const auto& [key, state] : parties_.all())
    if (!gang::is_closed(state)) over.erase(key.migration);
  if (over.empty()) co_return;
  parties_.forget([&over](const gang::GangInfo& info) { return over.contains(info.migration); });
  if (journal_.size_bytes() < kCompactAboveBytes) co_return;
  std::set<wire::MigrationId> known;
  for (const auto& [key, state] : parties_.all()) known.insert(key.migration);
  const auto rewrite = [this, &known] {
    return journal_.compact(
        [&known](const gang::Record& record) { return !known.contains(record.info.migration); });
  };
  auto compacted = co_await offload(disk_, rewrite);
  if (!compacted)
    spdlog::warn("journal of moves of ranks not compacted: reason {}", compacted.assume_error().to_string());
}

Task<> GangDriver::execute(Batches batches) {
  std::deque<gang::Batch> todo(std::make_move_iterator(batches.begin()),
                               std::make_move_iterator(batches.end()));
  while (!todo.empty()) {
    const gang::Batch batch = std::move(todo.front());
    todo.pop_front();
    for (const gang::Action& action : batch.actions) {
      const auto* write_record = std::get_if<gang::WriteRecord>(&action);
      if (!write_record) {
        perform(batch, action);
        continue;
      }
      Batches answer;
      const bool is_written = co_await write(batch, write_record->record, answer);
      if (is_written) continue;
      todo.insert(todo.begin(), std::make_move_iterator(answer.begin()),
                  std::make_move_iterator(answer.end()));
      break;
    }
  }
}

Task<bool> GangDriver::write(const gang::Batch& batch, const gang::Record& record, Batches& out) {
  const auto durability = batch.key.party.role == gang::Role::kBystander
                              ? gang::GangJournal::Durability::kWritten
                              : gang::GangJournal::Durability::kSynced;
  const auto append = [this, &record, durability] { return journal_.append(record, durability); };
  auto written = co_await offload(disk_, append);
  if (written) {
    spdlog::info("move of ranks: id {} record {}", name_of_key(batch.key), gang::name_of(record));
    fault_after_record(record.kind);
    co_return true;
  }
  const Error& error = written.assume_error();
  if (error.code() != ErrorCode::kRefused) {
    fatal_(Error(ErrorCode::kIo, "A journal record's fate is unknown").caused_by(error));
    co_return false;
  }
  spdlog::error("record of a move of ranks refused: id {} record {} reason {}", name_of_key(batch.key),
                gang::name_of(record), error.to_string());
  auto answer = parties_.record_failed(batch.key, wire::Reason(error), now_ns());
  if (answer)
    out = std::move(answer).assume_value();
  else
    refuse(answer.assume_error());
  co_return false;
}

void GangDriver::perform(const gang::Batch& batch, const gang::Action& action) {
  if (const auto* send = std::get_if<gang::Send>(&action)) return effects_.send(batch.key, batch.info, *send);
  if (const auto* timer = std::get_if<gang::ArmTimer>(&action)) return arm(batch.key, *timer);
  if (const auto* timer = std::get_if<gang::DisarmTimer>(&action)) {
    timers_.erase(TimerKey(batch.key, timer->timer));
    return;
  }
  effects_.perform(batch.key, batch.info, action);
}

void GangDriver::arm(const gang::PartyKey& key, const gang::ArmTimer& action) {
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

void GangDriver::fire(const gang::PartyKey& key, gang::Timer timer) {
  on_event(key, timer_event(key, timer));
}

}  // namespace ckpt::agent
