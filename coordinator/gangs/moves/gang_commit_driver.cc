// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gangs/moves/gang_commit_driver.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "libckpt/base/clock.h"
#include "libckpt/base/fault.h"
#include "libckpt/net/control/offload.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

constexpr std::size_t kMaxMessages = 4096;

void fault_after_record(gang::RecordKind kind) {
  if (kind == gang::RecordKind::kBegun) fault_point(FaultPoint::kCoordinatorBegun);
  if (kind == gang::RecordKind::kGranted) fault_point(FaultPoint::kCoordinatorGrantedDurable);
  if (kind == gang::RecordKind::kClosed) fault_point(FaultPoint::kCoordinatorClosedDurable);
  if (kind == gang::RecordKind::kAborted) fault_point(FaultPoint::kCoordinatorAbortedDurable);
}

}  // namespace

GangHandoverDriver::GangHandoverDriver(control::asio::any_io_executor executor, gang::GangJournal journal,
                                       gang::Timing timing, GangHandoverEffects& effects,
                                       std::function<void(const Error&)> fatal)
    : executor_(std::move(executor)),
      journal_(std::move(journal)),
      timing_(timing),
      effects_(effects),
      runner_(executor_, disk_, *this, {kMaxMessages, kMaxMessages}, std::move(fatal)) {}

GangHandoverDriver::~GangHandoverDriver() {
  disk_.join();
}

Result<void> GangHandoverDriver::restore() {
  std::map<MigrationId, gang::Record> newest;
  for (gang::Record& record : journal_.records()) {
    const MigrationId id = record.info.migration;
    newest.insert_or_assign(id, std::move(record));
  }
  for (const auto& [id, record] : newest) {
    CKPT_TRY(state, gang::restore_coordinator(record));
    machines_.insert_or_assign(id, std::move(state));
    control::asio::post(executor_, [this, restored = id] { runner_.enqueue(restored, gang::Restarted{}); });
  }
  return ok();
}

void GangHandoverDriver::begin(gang::GangInfo info) {
  const MigrationId id = info.migration;
  machines_.insert_or_assign(id, gang::begin(std::move(info), now_ns()));
  runner_.enqueue(id, gang::MigrateRequested{});
}

void GangHandoverDriver::recover(gang::GangInfo info) {
  const MigrationId id = info.migration;
  machines_.insert_or_assign(id, gang::recover_coordinator(std::move(info), now_ns()));
  runner_.enqueue(id, gang::Restarted{});
}

void GangHandoverDriver::on_message(MigrationId id, gang::Party from, gang::Body body) {
  runner_.enqueue_remote(id, gang::Message(from, std::move(body)));
}

const gang::CoordinatorState* GangHandoverDriver::find(MigrationId id) const {
  const auto at = machines_.find(id);
  return at == machines_.end() ? nullptr : &at->second;
}

void GangHandoverDriver::forget(MigrationId id) {
  machines_.erase(id);
  runner_.disarm([id](const Key& key) { return key.migration == id; });
  control::spawn(executor_, "compacting the journal of moves of ranks", compact(id));
}

Result<runner::Step<GangHandoverTypes::Batch>> GangHandoverDriver::step(MigrationId id, const Event& event) {
  const auto at = machines_.find(id);
  if (at == machines_.end()) return runner::Step<Batch>();  // the move is already settled
  before_.insert_or_assign(id, at->second);
  return runner::as_step(advance(id, before_.at(id), event));
}

Result<std::vector<GangHandoverTypes::Batch>> GangHandoverDriver::advance(MigrationId id,
                                                                          const gang::CoordinatorState& from,
                                                                          const Event& event) {
  CKPT_TRY(next, gang::step(from, event, now_ns(), timing_));
  const gang::CoordinatorState& now = machines_.insert_or_assign(id, std::move(next.state)).first->second;
  Batches batches;
  batches.push_back({Key{id}, now.info, std::move(next.actions)});
  return batches;
}

GangHandoverDriver::Event GangHandoverDriver::timer_fired(const Key& /*key*/, Timer timer) const {
  return gang::TimerFired(timer);
}

Result<std::vector<GangHandoverTypes::Batch>> GangHandoverDriver::record_refused(const Batch& batch,
                                                                                 const Record& record,
                                                                                 const Error& error) {
  const MigrationId id = batch.key.migration;
  if (record.kind != gang::RecordKind::kBegun)
    return advance(id, before_.at(id), gang::RecordFailed(wire::Reason(error)));
  machines_.erase(id);
  effects_.on_begin_refused(id, error);
  return Batches();
}

Result<void> GangHandoverDriver::append(const Batch& /*batch*/, const Record& record) {
  if (record.kind == gang::RecordKind::kBegun || record.kind == gang::RecordKind::kGranted) {
    CKPT_TRYV(journal_.reserve(gang::GangJournal::reserve_for(record.info.plan.size())));
  }
  return journal_.append(record);
}

void GangHandoverDriver::appended(const Batch& batch, const Record& record) {
  spdlog::info("move of ranks {}: {}", migration_text(batch.key.migration), gang::name_of(record));
  fault_after_record(record.kind);
}

void GangHandoverDriver::perform(const Batch& batch, const Action& action) {
  if (const auto* sent = std::get_if<gang::Send>(&action)) return effects_.send(batch.info, *sent);
  if (std::holds_alternative<gang::GatherRanks>(action)) return effects_.gather(batch.info);
  if (std::holds_alternative<gang::RestoreGang>(action)) return effects_.restore(batch.info);
}

std::chrono::milliseconds GangHandoverDriver::duration(const Batch& batch,
                                                       const gang::ArmTimer& timer) const {
  return effects_.duration(batch.key.migration, timer);
}

void GangHandoverDriver::on_event_done(MigrationId id, const Event* /*event*/,
                                       const Result<void>& /*outcome*/) {
  before_.erase(id);
  effects_.on_event_done(id);
}

std::string GangHandoverDriver::name_of(const Record& record) const {
  return gang::name_of(record);
}

control::Task<> GangHandoverDriver::compact(MigrationId without) {
  const auto rewrite = [this, without] {
    return journal_.compact(
        [without](const gang::Record& record) { return record.info.migration == without; });
  };
  auto compacted = co_await control::offload(disk_, rewrite);
  if (!compacted)
    spdlog::warn("the journal of moves of ranks was not compacted: {}", compacted.error().to_string());
}

}  // namespace ckpt::coordinator
