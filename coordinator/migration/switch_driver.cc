// SPDX-License-Identifier: Apache-2.0
#include "coordinator/migration/switch_driver.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "libckpt/base/clock.h"
#include "libckpt/base/fault.h"
#include "libckpt/net/control/offload.h"
#include "libckpt/net/control/spawn.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::coordinator {
namespace {

using migration::RecordKind;

constexpr std::uint64_t kCompactAboveBytes = 4 << 20;

void fault_after_record(RecordKind kind) {
  if (kind == RecordKind::kBegun) fault_point(FaultPoint::kCoordinatorBegun);
  if (kind == RecordKind::kGranted) fault_point(FaultPoint::kCoordinatorGrantedDurable);
  if (kind == RecordKind::kClosed) fault_point(FaultPoint::kCoordinatorClosedDurable);
  if (kind == RecordKind::kAborted) fault_point(FaultPoint::kCoordinatorAbortedDurable);
}

void fault_before_message(const wire::SwitchBody& body) {
  if (std::holds_alternative<wire::Committed>(body)) fault_point(FaultPoint::kCoordinatorHeardCommitted);
  if (std::holds_alternative<wire::Released>(body)) fault_point(FaultPoint::kCoordinatorHeardReleased);
}

// Twice the size after a compaction, and never so much that an append would be refused before.
std::uint64_t next_compaction(std::uint64_t left) {
  const std::uint64_t space = migration::Journal::kMaxBytes - std::min(left, migration::Journal::kMaxBytes);
  return std::max(kCompactAboveBytes, left + std::min(left, space / 2));
}

}  // namespace

SwitchDriver::SwitchDriver(control::asio::any_io_executor executor, migration::Journal journal,
                           migration::Timing timing, SwitchEffects& effects,
                           std::function<void(const Error&)> fatal)
    : executor_(std::move(executor)),
      journal_(std::move(journal)),
      switches_(timing),
      effects_(effects),
      fatal_(std::move(fatal)),
      journal_bytes_(journal_.size_bytes()),
      compact_at_bytes_(kCompactAboveBytes) {}

SwitchDriver::~SwitchDriver() {
  disk_.join();
}

Result<void> SwitchDriver::restore(const std::vector<migration::Record>& records) {
  CKPT_TRY(batches, switches_.restore(records, now_ns()));
  for (migration::Batch& batch : batches) {
    const MigrationId id = batch.info.migration;
    migration::Batches its;
    its.push_back(std::move(batch));
    put(id, Item{std::move(its), {}});
  }
  return ok();
}

Result<void> SwitchDriver::begin(migration::SwitchInfo info, bool source_connected, bool target_connected) {
  const MigrationId id = info.migration;
  CKPT_TRY(batches, switches_.begin(std::move(info), source_connected, target_connected, now_ns()));
  put(id, Item{std::move(batches), {}});
  return ok();
}

Result<void> SwitchDriver::recover(migration::SwitchInfo info) {
  const MigrationId id = info.migration;
  CKPT_TRY(batches, switches_.recover(std::move(info), now_ns()));
  put(id, Item{std::move(batches), {}});
  return ok();
}

void SwitchDriver::on_message(wire::SwitchMessage message) {
  const MigrationId id = message.migration;
  Queue& queue = queues_[id];
  if (queue.heard >= kMaxHeard) {
    if (const auto left_out = dropped_.turn(now_ns()))
      spdlog::warn("migration {}: {} messages wait for its record, another one was dropped, {} left out",
                   wire::migration_text(id), queue.heard, *left_out);
    return;
  }
  ++queue.heard;
  put(id, Item{std::move(message), {}});
}

std::size_t SwitchDriver::waiting(MigrationId id) const {
  const auto queue = queues_.find(id);
  return queue == queues_.end() ? 0 : queue->second.items.size();
}

void SwitchDriver::on_event(MigrationId id, migration::CoordinatorEvent event) {
  put(id, Item{std::move(event), {}});
}

control::Task<Result<void>> SwitchDriver::handle(MigrationId id, migration::CoordinatorEvent event) {
  Item item{std::move(event), {}};
  co_return co_await put_and_wait(id, std::move(item));
}

control::Task<> SwitchDriver::caught_up(MigrationId id) {
  if (!is_busy(id)) co_return;
  Item mark;
  co_await put_and_wait(id, std::move(mark));
}

control::Task<Result<void>> SwitchDriver::put_and_wait(MigrationId id, Item item) {
  std::optional<Result<void>> result;
  const auto executor = co_await control::asio::this_coro::executor;
  co_await control::asio::async_initiate<const control::asio::use_awaitable_t<>, void()>(
      [&](auto handler) {
        const auto kept = std::make_shared<decltype(handler)>(std::move(handler));
        item.then = [&result, executor, kept](const Result<void>& outcome) {
          result = outcome;
          control::asio::post(executor, std::move(*kept));
        };
        put(id, std::move(item));
      },
      control::asio::use_awaitable);
  co_return std::move(*result);
}

control::Task<Result<migration::Journal::Copy>> SwitchDriver::copy_journal() {
  const auto copy = [this] { return journal_.copy(); };
  co_return co_await control::offload(disk_, copy);
}

void SwitchDriver::forget(MigrationId id) {
  switches_.forget_migration(id);
  for (auto timer = timers_.lower_bound({id, migration::Timer{}});
       timer != timers_.end() && timer->first.first == id;)
    timer = timers_.erase(timer);
}

void SwitchDriver::put(MigrationId id, Item item) {
  Queue& queue = queues_[id];
  queue.items.push_back(std::move(item));
  if (std::exchange(queue.busy, true)) return;
  take(id, queue);
  go_on(id);
}

void SwitchDriver::go_on(MigrationId id) {
  Queue& queue = queues_.at(id);
  while (execute(id, queue)) {
    effects_.handled(id);
    if (const Then then = std::exchange(queue.then, {})) then(queue.outcome);
    if (queue.items.empty()) {
      queues_.erase(id);
      return compact_if_large();
    }
    take(id, queue);
  }
}

void SwitchDriver::take(MigrationId id, Queue& queue) {
  Item item = std::move(queue.items.front());
  queue.items.pop_front();
  if (std::holds_alternative<wire::SwitchMessage>(item.what)) --queue.heard;
  queue.then = std::move(item.then);
  queue.outcome = ok();
  auto batches = feed(id, item);
  if (batches) {
    migration::Batches& found = batches.assume_value();
    queue.batches.assign(std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
    return;
  }
  queue.outcome = batches.assume_error();
  if (const auto left_out = refused_.turn(now_ns()))
    spdlog::warn("migration {}: {} ({} left out)", wire::migration_text(id),
                 batches.assume_error().to_string(), *left_out);
}

Result<migration::Batches> SwitchDriver::feed(MigrationId id, Item& item) {
  if (auto* batches = std::get_if<migration::Batches>(&item.what)) return std::move(*batches);
  if (const auto* message = std::get_if<wire::SwitchMessage>(&item.what)) {
    fault_before_message(message->body);
    return switches_.on_message(*message, now_ns());
  }
  const auto& event = std::get<migration::CoordinatorEvent>(item.what);
  effects_.taking(id, event);
  return switches_.on_event(id, event, now_ns());
}

bool SwitchDriver::execute(MigrationId id, Queue& queue) {
  while (!queue.batches.empty()) {
    const migration::Batch& batch = queue.batches.front();
    if (queue.next == batch.actions.size()) {
      if (std::exchange(queue.started, false)) fault_point(FaultPoint::kCoordinatorPrepared);
      queue.batches.pop_front();
      queue.next = 0;
      continue;
    }
    const migration::Action& action = batch.actions[queue.next++];
    if (const auto* record = std::get_if<migration::WriteRecord>(&action)) {
      write(id, record->record);
      return false;
    }
    perform(batch, action);
    if (const auto* sent = std::get_if<migration::Send>(&action)) {
      queue.started = queue.started || std::holds_alternative<wire::Start>(sent->body);
      if (std::holds_alternative<wire::Commit>(sent->body)) fault_point(FaultPoint::kCoordinatorCommitSent);
    }
  }
  return true;
}

void SwitchDriver::perform(const migration::Batch& batch, const migration::Action& action) {
  const MigrationId id = batch.info.migration;
  if (const auto* sent = std::get_if<migration::Send>(&action)) return effects_.send(batch.info, *sent);
  if (const auto* timer = std::get_if<migration::ArmTimer>(&action)) return arm(id, *timer);
  if (const auto* report = std::get_if<migration::Report>(&action))
    return effects_.report(batch.info, *report);
  if (const auto* disarm = std::get_if<migration::DisarmTimer>(&action)) {
    timers_.erase({id, disarm->timer});
    return;
  }
  spdlog::error("migration {}: {} is no action of a coordinator", wire::migration_text(id),
                migration::describe(action));
}

// The record stays where it is: its queue is busy, and the driver's end waits for the disk thread.
void SwitchDriver::write(MigrationId id, const migration::Record& record) {
  control::asio::post(disk_, [this, id, &record] {
    control::asio::post(executor_, [this, id, &record, done = append(record)] { written(id, record, done); });
  });
}

SwitchDriver::Written SwitchDriver::append(const migration::Record& record) {
  Result<void> outcome = ok();
  if (record.kind == RecordKind::kBegun)
    outcome = journal_.reserve(migration::Journal::reserve_for(record.info.plan.size()));
  if (outcome) outcome = journal_.append(record);
  return {std::move(outcome), journal_.size_bytes()};
}

void SwitchDriver::written(MigrationId id, const migration::Record& record, const Written& written) {
  journal_bytes_ = written.bytes;
  if (written.outcome) {
    fault_after_record(record.kind);
    return go_on(id);
  }
  const Error& error = written.outcome.assume_error();
  if (error.code() != ErrorCode::kRefused) return fatal_(error);
  spdlog::error("migration {}: record {} refused: {}", wire::migration_text(id),
                migration::to_string(record.kind), error.to_string());
  refused(id, queues_.at(id), error);
  go_on(id);
}

// The rest of the batch is dropped.
void SwitchDriver::refused(MigrationId id, Queue& queue, const Error& error) {
  const migration::SwitchKey key = queue.batches.front().key;
  queue.batches.pop_front();
  queue.next = 0;
  queue.started = false;
  auto answer = switches_.record_failed(key, wire::Reason(error), now_ns());
  if (!answer)
    return spdlog::error("migration {}: {}", wire::migration_text(id), answer.assume_error().to_string());
  if (switches_.find(id) == nullptr) return effects_.not_begun(id, error);
  migration::Batches& batches = answer.assume_value();
  queue.batches.insert(queue.batches.begin(), std::make_move_iterator(batches.begin()),
                       std::make_move_iterator(batches.end()));
}

void SwitchDriver::arm(MigrationId id, const migration::ArmTimer& action) {
  auto timer = std::make_shared<control::asio::steady_timer>(executor_, effects_.duration(id, action));
  // Replacing the entry destroys an armed one, which cancels it.
  timers_[{id, action.timer}] = timer;
  timer->async_wait([this, id, kind = action.timer, raw = timer.get()](boost::system::error_code code) {
    if (code) return;
    const auto at = timers_.find({id, kind});
    if (at == timers_.end() || at->second.get() != raw) return;  // fired, but replaced before this ran
    timers_.erase(at);
    on_event(id, migration::TimerFired(kind));
  });
}

void SwitchDriver::compact_if_large() {
  if (journal_bytes_ < compact_at_bytes_ || std::exchange(compacting_, true)) return;
  control::spawn(executor_, "compacting the journal", compact());
}

control::Task<> SwitchDriver::compact() {
  auto forget = co_await effects_.forgettable();
  Written done{ok(), 0};
  if (forget) {
    // Records that were appended meanwhile stay: no rule of before speaks of them.
    const auto rewrite = [this, &forget] {
      Result<void> compacted = journal_.compact(forget.assume_value());
      return Written{std::move(compacted), journal_.size_bytes()};
    };
    done = co_await control::offload(disk_, rewrite);
    journal_bytes_ = done.bytes;
  } else {
    done.outcome = forget.assume_error();
  }
  if (!done.outcome)
    spdlog::warn("the journal was not compacted: {}", done.outcome.assume_error().to_string());
  compact_at_bytes_ = next_compaction(journal_bytes_);
  compacting_ = false;
}

}  // namespace ckpt::coordinator
