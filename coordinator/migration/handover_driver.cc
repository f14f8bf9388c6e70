// SPDX-License-Identifier: Apache-2.0
#include "coordinator/migration/handover_driver.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>

#include "libckpt/base/clock.h"
#include "libckpt/base/fault.h"
#include "libckpt/net/control/offload.h"
#include "libckpt/net/control/spawn.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::coordinator {
namespace {

using migration::MigrationId;
using migration::RecordKind;

constexpr std::uint64_t kCompactAboveBytes = 4 << 20;

void fault_after_record(RecordKind kind) {
  if (kind == RecordKind::kBegun) fault_point(FaultPoint::kCoordinatorBegun);
  if (kind == RecordKind::kGranted) fault_point(FaultPoint::kCoordinatorGrantedDurable);
  if (kind == RecordKind::kClosed) fault_point(FaultPoint::kCoordinatorClosedDurable);
  if (kind == RecordKind::kAborted) fault_point(FaultPoint::kCoordinatorAbortedDurable);
}

void fault_before_message(const wire::Body& body) {
  if (std::holds_alternative<wire::Committed>(body)) fault_point(FaultPoint::kCoordinatorHeardCommitted);
  if (std::holds_alternative<wire::Released>(body)) fault_point(FaultPoint::kCoordinatorHeardReleased);
}

// Returns the size at which the journal is compacted again. This is twice the size after a compaction, but
// small enough that no append is refused before the journal reaches it.
std::uint64_t next_compaction(std::uint64_t left) {
  const std::uint64_t space = migration::Journal::kMaxBytes - std::min(left, migration::Journal::kMaxBytes);
  return std::max(kCompactAboveBytes, left + std::min(left, space / 2));
}

}  // namespace

HandoverDriver::HandoverDriver(control::asio::any_io_executor executor, migration::Journal journal,
                               migration::Timing timing, HandoverEffects& effects,
                               std::function<void(const Error&)> fatal)
    : executor_(std::move(executor)),
      journal_(std::move(journal)),
      handovers_(timing),
      effects_(effects),
      journal_bytes_(journal_.size_bytes()),
      compact_at_bytes_(kCompactAboveBytes),
      runner_(executor_, disk_, *this, {kMaxQueued, std::numeric_limits<std::size_t>::max()},
              std::move(fatal)) {}

HandoverDriver::~HandoverDriver() {
  disk_.join();
}

Result<void> HandoverDriver::restore(const std::vector<migration::Record>& records) {
  CKPT_TRY(batches, handovers_.restore(records, now_ns()));
  for (migration::Batch& batch : batches) {
    const MigrationId id = batch.info.migration;
    Batches its;
    its.push_back(std::move(batch));
    runner_.enqueue_batches(id, std::move(its));
  }
  return ok();
}

Result<void> HandoverDriver::begin(migration::HandoverInfo info, bool source_connected,
                                   bool target_connected) {
  const MigrationId id = info.migration;
  CKPT_TRY(batches, handovers_.begin(std::move(info), source_connected, target_connected, now_ns()));
  runner_.enqueue_batches(id, std::move(batches));
  return ok();
}

Result<void> HandoverDriver::recover(migration::HandoverInfo info) {
  const MigrationId id = info.migration;
  CKPT_TRY(batches, handovers_.recover(std::move(info), now_ns()));
  runner_.enqueue_batches(id, std::move(batches));
  return ok();
}

void HandoverDriver::on_message(wire::CommitMessage message) {
  const MigrationId id = message.migration;
  runner_.enqueue_remote(id, std::move(message));
}

control::Task<Result<void>> HandoverDriver::handle(MigrationId id, migration::CoordinatorEvent event) {
  Event queued(std::move(event));
  co_return co_await runner_.enqueue_and_wait(id, std::move(queued));
}

control::Task<Result<migration::Journal::Copy>> HandoverDriver::copy_journal() {
  const auto copy = [this] { return journal_.copy(); };
  co_return co_await control::offload(disk_, copy);
}

void HandoverDriver::forget(MigrationId id) {
  handovers_.erase_migration(id);
  runner_.disarm([id](const Key& key) { return key.migration == id; });
}

Result<runner::Step<migration::Batch>> HandoverDriver::step(MigrationId id, const Event& event) {
  if (const auto* message = std::get_if<wire::CommitMessage>(&event)) {
    fault_before_message(message->body);
    return runner::as_step(handovers_.on_message(*message, now_ns()));
  }
  const auto& own = std::get<migration::CoordinatorEvent>(event);
  effects_.before_event(id, own);
  return runner::as_step(handovers_.on_event(id, own, now_ns()));
}

HandoverDriver::Event HandoverDriver::timer_fired(const Key& /*key*/, Timer timer) const {
  return migration::CoordinatorEvent(migration::TimerFired(timer));
}

Result<migration::Batches> HandoverDriver::record_refused(const Batch& batch, const Record& /*record*/,
                                                          const Error& error) {
  const MigrationId id = batch.info.migration;
  CKPT_TRY(batches, handovers_.record_failed(batch.key, wire::Reason(error), now_ns()));
  if (handovers_.find(id) != nullptr) return std::move(batches);
  effects_.on_begin_refused(id, error);
  return Batches();
}

Result<void> HandoverDriver::append(const Batch& /*batch*/, const Record& record) {
  Result<void> outcome = ok();
  if (record.kind == RecordKind::kBegun)
    outcome = journal_.reserve(migration::Journal::reserve_for(record.info.plan.size()));
  if (outcome) outcome = journal_.append(record);
  journal_bytes_ = journal_.size_bytes();
  return outcome;
}

void HandoverDriver::appended(const Batch& /*batch*/, const Record& record) {
  fault_after_record(record.kind);
}

void HandoverDriver::perform(const Batch& batch, const Action& action) {
  if (const auto* sent = std::get_if<migration::Send>(&action)) {
    effects_.send(batch.info, *sent);
    if (std::holds_alternative<wire::Commit>(sent->body)) fault_point(FaultPoint::kCoordinatorCommitSent);
    return;
  }
  if (const auto* report = std::get_if<migration::Report>(&action))
    return effects_.report(batch.info, *report);
  spdlog::error("migration {}: {} is not an action of a coordinator",
                wire::migration_text(batch.info.migration), migration::describe(action));
}

std::chrono::milliseconds HandoverDriver::duration(const Batch& batch,
                                                   const migration::ArmTimer& timer) const {
  return effects_.duration(batch.info.migration, timer);
}

void HandoverDriver::executed(const Batch& batch) {
  const bool has_started = std::any_of(batch.actions.begin(), batch.actions.end(), [](const Action& action) {
    const auto* sent = std::get_if<migration::Send>(&action);
    return sent != nullptr && std::holds_alternative<wire::Start>(sent->body);
  });
  if (has_started) fault_point(FaultPoint::kCoordinatorPrepared);
}

void HandoverDriver::on_event_done(MigrationId id, const Event* /*event*/, const Result<void>& /*outcome*/) {
  effects_.on_event_done(id);
  compact_if_large();
}

std::string HandoverDriver::name_of(const Record& record) const {
  return std::string(migration::to_string(record.kind));
}

void HandoverDriver::compact_if_large() {
  if (journal_bytes_ < compact_at_bytes_ || std::exchange(compacting_, true)) return;
  control::spawn(executor_, "compacting the journal", compact());
}

control::Task<> HandoverDriver::compact() {
  auto forget = co_await effects_.forgettable();
  Result<void> done = ok();
  if (forget) {
    // Records that were appended in the meantime stay, because `forget` was determined before they existed.
    const auto rewrite = [this, &forget] {
      Result<void> compacted = journal_.compact(*forget);
      journal_bytes_ = journal_.size_bytes();
      return compacted;
    };
    done = co_await control::offload(disk_, rewrite);
  } else {
    done = forget.error();
  }
  if (!done) spdlog::warn("the journal was not compacted: {}", done.error().to_string());
  compact_at_bytes_ = next_compaction(journal_bytes_);
  compacting_ = false;
}

}  // namespace ckpt::coordinator
