// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/handover_driver.h"

#include <spdlog/spdlog.h>

#include "libckpt/base/clock.h"
#include "libckpt/base/fault.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {
namespace {

using migration::Action;
using migration::Batch;
using migration::Batches;
using migration::RecordKind;
using wire::Role;

// Provides crash points between the receipt of an event and its handling by the machine.
void fault_before(const wire::CommitMessage& message) {
  if (message.to.role == Role::kSource && std::holds_alternative<wire::Ran>(message.body)) {
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
    : journal_(std::move(journal)),
      handovers_(timing),
      effects_(effects),
      runner_(io.get_executor(), disk, *this, {kMaxOfMigration, kMaxQueued}, std::move(fatal)) {}

Task<Result<void>> HandoverDriver::restore() {
  return runner_.restore(0, handovers_.restore(journal_.records(), now_ns()));
}

void HandoverDriver::on_message(wire::CommitMessage message) {
  const wire::MigrationId id = message.migration;
  runner_.enqueue_remote(id, std::move(message));
}

void HandoverDriver::on_own_message(wire::CommitMessage message) {
  const wire::MigrationId id = message.migration;
  runner_.enqueue(id, std::move(message));
}

void HandoverDriver::on_event(migration::HandoverKey key, migration::SourceEvent event) {
  runner_.enqueue(key.migration, HandoverTypes::OfSource{key, std::move(event)});
}

void HandoverDriver::on_event(migration::HandoverKey key, migration::TargetEvent event) {
  runner_.enqueue(key.migration, HandoverTypes::OfTarget{key, std::move(event)});
}

void HandoverDriver::ask_again() {
  runner_.fire_now(
      [](Timer timer) { return timer == migration::Timer::kPoll || timer == migration::Timer::kLease; });
}

void HandoverDriver::forget(wire::JobId job) {
  runner_.enqueue(0, HandoverTypes::Forget{job});
}

Result<runner::Step<Batch>> HandoverDriver::step(wire::MigrationId /*migration*/, const Event& event) {
  if (const auto* message = std::get_if<wire::CommitMessage>(&event)) {
    fault_before(*message);
    const auto* prepare = std::get_if<wire::Prepare>(&message->body);
    if (prepare == nullptr) return runner::as_step(handovers_.on_message(*message, now_ns()));
    const std::uint64_t bytes = migration::Journal::reserve_for(prepare->plan.size());
    return runner::Step<Batch>(
        runner::DiskWork<Batch>{[this, bytes] { return journal_.reserve(bytes); },
                                [this, message](const Result<void>& reserved) -> Result<Batches> {
                                  if (reserved) return handovers_.on_message(*message, now_ns());
                                  refuse(*message, reserved.error());
                                  return Batches();
                                }});
  }
  if (const auto* source = std::get_if<HandoverTypes::OfSource>(&event)) {
    fault_before(source->event);
    return runner::as_step(handovers_.on_event(source->key, source->event, now_ns()));
  }
  if (const auto* target = std::get_if<HandoverTypes::OfTarget>(&event)) {
    fault_before(target->event);
    return runner::as_step(handovers_.on_event(target->key, target->event, now_ns()));
  }
  const wire::JobId job = std::get<HandoverTypes::Forget>(event).job;
  handovers_.forget(job);
  const auto compact = [this, job] {
    return journal_.compact([job](const Record& record) { return record.info.job == job; });
  };
  return runner::Step<Batch>(runner::DiskWork<Batch>{
      compact, [](const Result<void>& compacted) -> Result<Batches> {
        if (!compacted) spdlog::warn("journal not compacted: reason {}", compacted.error().to_string());
        return Batches();
      }});
}

void HandoverDriver::refuse(const wire::CommitMessage& prepare, const Error& error) {
  spdlog::error("migration {} refused: {}", wire::migration_text(prepare.migration), error.to_string());
  const Error reason = Error(ErrorCode::kRefused, "The disk has no space for the journal").caused_by(error);
  const wire::CommitMessage answer(prepare.migration, prepare.job, prepare.base, prepare.to.role,
                                   Role::kCoordinator, wire::Body(wire::Refused(wire::Reason(reason))));
  effects_.send(migration::HandoverKey{prepare.migration, prepare.to.role},
                migration::HandoverInfo(prepare.migration, prepare.job, prepare.base, {}, {}), answer);
}

HandoverDriver::Event HandoverDriver::timer_fired(const Key& key, Timer timer) const {
  const migration::TimerFired fired(timer);
  if (key.role == Role::kSource) return HandoverTypes::OfSource{key, migration::SourceEvent(fired)};
  return HandoverTypes::OfTarget{key, migration::TargetEvent(fired)};
}

Result<Batches> HandoverDriver::record_refused(const Batch& batch, const Record& /*record*/,
                                               const Error& reason) {
  return handovers_.record_failed(batch.key, wire::Reason(reason), now_ns());
}

Result<void> HandoverDriver::append(const Batch& /*batch*/, const Record& record) {
  return journal_.append(record);
}

void HandoverDriver::appended(const Batch& /*batch*/, const Record& record) {
  fault_after_record(record.kind);
}

void HandoverDriver::perform(const Batch& batch, const Action& action) {
  if (const auto* send = std::get_if<migration::Send>(&action)) {
    const wire::CommitMessage message(batch.info.migration, batch.info.job, batch.info.base, send->from,
                                      send->to, send->body);
    return effects_.send(batch.key, batch.info, message);
  }
  if (const auto* report = std::get_if<migration::Report>(&action))
    return effects_.report(batch.key, batch.info, *report);
  if (std::holds_alternative<migration::PrepareSource>(action)) fault_point(FaultPoint::kSourcePreparing);
  if (std::holds_alternative<migration::PrepareStandby>(action)) fault_point(FaultPoint::kTargetPreparing);
  effects_.perform(batch.key, batch.info, action);
  if (std::holds_alternative<migration::StartReceiving>(action)) fault_point(FaultPoint::kTargetPrecopy);
}

std::chrono::milliseconds HandoverDriver::duration(const Batch& /*batch*/,
                                                   const migration::ArmTimer& timer) const {
  return std::chrono::milliseconds(timer.ms);
}

void HandoverDriver::on_event_done(wire::MigrationId /*migration*/, const Event* event,
                                   const Result<void>& outcome) {
  const auto* target = event == nullptr ? nullptr : std::get_if<HandoverTypes::OfTarget>(event);
  if (outcome && target != nullptr && std::holds_alternative<migration::InstanceRuns>(target->event))
    fault_point(FaultPoint::kTargetRunsStated);
}

std::string HandoverDriver::name_of(const Record& record) const {
  return std::string(migration::to_string(record.kind));
}

}  // namespace ckpt::agent
