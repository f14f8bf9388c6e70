// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/gangs/gang_driver.h"

#include <spdlog/spdlog.h>

#include <set>

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
    : journal_(std::move(machines.journal)),
      parties_(machines.timing),
      effects_(effects),
      runner_(machines.io.get_executor(), machines.disk, *this, {kMaxReceived, kMaxReceived},
              std::move(machines.fatal)) {}

Task<Result<void>> GangDriver::restore() {
  return runner_.restore(0, parties_.restore(journal_.records(), now_ns()));
}

void GangDriver::on_message(wire::CommitMessage message) {
  const wire::MigrationId id = message.migration;
  runner_.enqueue_remote(id, std::move(message));
}

void GangDriver::on_own_message(wire::CommitMessage message) {
  const wire::MigrationId id = message.migration;
  runner_.enqueue(id, std::move(message));
}

void GangDriver::on_event(const gang::PartyKey& key, gang::PartyEvent event) {
  runner_.enqueue(key.migration, GangTypes::OfParty{key, std::move(event)});
}

void GangDriver::ask_again() {
  runner_.fire_now([](Timer timer) { return timer == gang::Timer::kPoll || timer == gang::Timer::kLease; });
}

void GangDriver::forget(std::function<bool(const gang::GangInfo&)> which) {
  runner_.enqueue(0, GangTypes::Forget{std::move(which)});
}

Result<runner::Step<gang::Batch>> GangDriver::step(wire::MigrationId /*migration*/, const Event& event) {
  if (const auto* message = std::get_if<wire::CommitMessage>(&event)) return handle_message(*message);
  if (const auto* forget = std::get_if<GangTypes::Forget>(&event)) return compact_without(forget->which);
  const auto& own = std::get<GangTypes::OfParty>(event);
  return runner::as_step(parties_.on_event(own.key, own.event, now_ns()));
}

// Handles a message. If the disk is full, the party is not created. The coordinator then repeats its request,
// and finally aborts the move.
Result<runner::Step<gang::Batch>> GangDriver::handle_message(const wire::CommitMessage& message) {
  const bool is_new = message.info && parties_.find({message.migration, message.to}) == nullptr;
  if (!is_new) return runner::as_step(hand_over(message));
  const std::uint64_t bytes = gang::GangJournal::reserve_for(message.info->plan.size());
  const auto begin = [this, &message](const Result<void>& reserved) -> Result<Batches> {
    if (!reserved) {
      spdlog::error("move of ranks {} refused: {}", wire::migration_text(message.migration),
                    reserved.error().to_string());
      return Batches();
    }
    CKPT_TRY(batches, hand_over(message));
    // A move begins after the previous move has ended on all nodes. Therefore no node queries the earlier
    // move.
    forget([gang = message.job, now = message.migration](const gang::GangInfo& info) {
      return info.gang == gang && info.migration < now;
    });
    return std::move(batches);
  };
  return Step(runner::DiskWork<Batch>{[this, bytes] { return journal_.reserve(bytes); }, begin});
}

Result<std::vector<gang::Batch>> GangDriver::hand_over(const wire::CommitMessage& message) {
  CKPT_TRY(batches, parties_.on_message(message, now_ns()));
  if (batches) return std::move(*batches);
  effects_.ask_for_info(message);
  return Batches();
}

runner::Step<gang::Batch> GangDriver::compact_without(
    const std::function<bool(const gang::GangInfo&)>& which) {
  std::set<wire::MigrationId> over;
  for (const auto& [key, state] : parties_.all())
    if (which(gang::info_of(state))) over.insert(key.migration);
  for (const auto& [key, state] : parties_.all())
    if (!gang::is_closed(state)) over.erase(key.migration);
  if (over.empty()) return Step();
  parties_.forget([&over](const gang::GangInfo& info) { return over.contains(info.migration); });
  if (journal_.size_bytes() < kCompactAboveBytes) return Step();
  std::set<wire::MigrationId> known;
  for (const auto& [key, state] : parties_.all()) known.insert(key.migration);
  const auto compact = [this, known = std::move(known)] {
    return journal_.compact(
        [&known](const Record& record) { return !known.contains(record.info.migration); });
  };
  return runner::DiskWork<Batch>{compact, [](const Result<void>& compacted) -> Result<Batches> {
                                   if (!compacted)
                                     spdlog::warn("journal of moves of ranks not compacted: reason {}",
                                                  compacted.error().to_string());
                                   return Batches();
                                 }};
}

GangDriver::Event GangDriver::timer_fired(const Key& key, Timer timer) const {
  return GangTypes::OfParty{key, timer_event(key, timer)};
}

Result<std::vector<gang::Batch>> GangDriver::record_refused(const Batch& batch, const Record& /*record*/,
                                                            const Error& reason) {
  return parties_.record_failed(batch.key, wire::Reason(reason), now_ns());
}

Result<void> GangDriver::append(const Batch& batch, const Record& record) {
  const bool is_bystander = batch.key.party.role == gang::Role::kBystander;
  return journal_.append(record, is_bystander ? gang::GangJournal::Durability::kWritten
                                              : gang::GangJournal::Durability::kSynced);
}

void GangDriver::appended(const Batch& batch, const Record& record) {
  spdlog::info("move of ranks: id {} record {}", name_of_key(batch.key), gang::name_of(record));
  fault_after_record(record.kind);
}

void GangDriver::perform(const Batch& batch, const Action& action) {
  if (const auto* send = std::get_if<gang::Send>(&action)) return effects_.send(batch.key, batch.info, *send);
  effects_.perform(batch.key, batch.info, action);
}

std::chrono::milliseconds GangDriver::duration(const Batch& /*batch*/, const gang::ArmTimer& timer) const {
  return std::chrono::milliseconds(timer.ms);
}

void GangDriver::on_event_done(wire::MigrationId /*migration*/, const Event* event,
                               const Result<void>& outcome) {
  const auto* message = event == nullptr ? nullptr : std::get_if<wire::CommitMessage>(event);
  if (!outcome || message == nullptr || !message->asks_for_info || message->from != gang::Party()) return;
  const gang::PartyKey key(message->migration, message->to);
  const gang::PartyState* state = parties_.find(key);
  // A party that waits for the exit of its instance will have more to report. The coordinator repeats its
  // request.
  if (state != nullptr && !gang::is_ending(*state)) effects_.has_stated_all(key, gang::info_of(*state));
}

std::string GangDriver::name_of(const Record& record) const {
  return gang::name_of(record);
}

}  // namespace ckpt::agent
