// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshots/snapshot_session.h"

#include <spdlog/spdlog.h>

#include "libckpt/base/fault.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent::protect {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Milliseconds kFirstBackoff{100};
constexpr Milliseconds kMaxBackoff{5000};
// The share of the device's time for rounds ahead while the job continues. The limit also keeps each launch
// short.
constexpr std::uint32_t kSlowdownPermille = 250;
// The time that a rank of a gang waits for its next order, because a disconnected coordinator may not return.
// A rank that waits for other ranks repeats kReady in the meantime.
constexpr std::chrono::seconds kForOrders{60};

Error gave_way() {
  return {ErrorCode::kAborted,
          "A migration of the job canceled the snapshot: take it again after the migration"};
}

Error rank_is_over() {
  return {ErrorCode::kAborted, "The snapshot of this rank has already ended"};
}

Error given_up() {
  return {ErrorCode::kAborted, "The snapshot was canceled as requested: the job continues to run"};
}

}  // namespace

SnapshotSession::SnapshotSession(ProtectContext& context, wire::TakeSnapshot request,
                                 CheckpointStorePlace place, std::shared_ptr<Job> job)
    : context_(context),
      request_(std::move(request)),
      place_(std::move(place)),
      job_(std::move(job)),
      arrived_(context.base.executor),
      job_turn_(context.base.executor),
      whole_turn_(context.base.executor) {
  report_.job = request_.job;
  report_.incarnation = request_.incarnation;
  report_.folder = request_.folder;
  report_.image_job = request_.image_job;
  report_.set = request_.set;
}

void SnapshotSession::report_phase(wire::SnapshotPhase phase) {
  report_.phase = phase;
  report_.total_ns = now_ns() - began_ns_;
  context_.report(report_);
}

Task<Result<void>> SnapshotSession::run() {
  auto self = shared_from_this();
  const AsyncMutex::Held whole = co_await whole_turn_.acquire();
  began_ns_ = now_ns();
  job_held_.emplace(co_await job_turn_.acquire());
  report_phase(wire::SnapshotPhase::kCopying);
  auto captured = co_await capture_all();
  is_over_ = true;
  notify_watchers();
  if (!captured) co_await lift_stop();
  co_await release_session();
  is_holding_ = captured && request_.holds_after;
  if (!is_holding_) job_held_.reset();
  if (captured) {
    spdlog::info("snapshot taken: job {} version {} pause_ms {:.1f} dirty_bytes {} written_bytes {}",
                 wire::job_text(request_.job), report_.version, static_cast<double>(report_.pause_ns) / 1e6,
                 report_.dirty_bytes, report_.written_bytes);
    report_phase(wire::SnapshotPhase::kDone);
    co_return ok();
  }
  spdlog::warn("snapshot failed: job {} reason {}", wire::job_text(request_.job),
               captured.error().to_string());
  report_.error = captured.error().to_string();
  report_phase(wire::SnapshotPhase::kFailed);
  co_return captured;
}

// Takes the snapshot. The coordinator decides whether all ranks take a set a second time.
Task<Result<void>> SnapshotSession::capture_all() {
  if (request_.set == 0) co_return co_await take_twice();
  co_return co_await capture(request_.full);
}

// Takes the snapshot, and repeats it if necessary. Data kept from the previous version may prove to be
// missing or damaged after the job runs again. Everything is then copied.
Task<Result<void>> SnapshotSession::take_twice() {
  auto captured = co_await capture(false);
  if (captured || giving_way_ || job_->ended()) co_return captured;
  const ErrorCode code = captured.error().code();
  if (code != ErrorCode::kCorrupt && code != ErrorCode::kAborted) co_return captured;
  spdlog::warn("snapshot taken again, with all memory: job {} reason {}", wire::job_text(request_.job),
               captured.error().to_string());
  co_await release_session();
  co_return co_await capture(true);
}

Task<Result<void>> SnapshotSession::capture(bool full) {
  failure_.reset();
  ready_.reset();
  staged_.reset();
  done_.reset();
  mover_released_ = false;
  if (!job_held_) job_held_.emplace(co_await job_turn_.acquire());
  CKPT_CO_TRYV(co_await prepare(full));
  if (request_.set != 0) {
    CKPT_CO_TRYV(co_await wait_for_barrier());
  }
  CKPT_CO_TRYV(co_await pass_barrier());
  report_phase(wire::SnapshotPhase::kWriting);
  auto written = co_await wait_for(done_, Clock::time_point::max());
  if (!written) {
    if (cancelled_) co_await mover_lets_go();
    if (stays()) (void)co_await go_on();
    co_return written;
  }
  fault_point(FaultPoint::kSnapshotDurable);
  report_.version = done_->version;
  report_.parent = done_->parent;
  report_.written_bytes = done_->written_bytes;
  report_.host_bytes = done_->host_bytes;
  if (request_.end_after) {
    left_ = true;
    co_await mode_->leave(job_);
  }
  co_return ok();
}

Task<Result<void>> SnapshotSession::prepare(bool full) {
  const auto keeper = job_->keeper();
  if (job_->ended() || !keeper) co_return Error(ErrorCode::kUnavailable, "The job has ended");
  CKPT_CO_TRY(description, co_await keeper->describe());
  if (!description.summary.movable)
    co_return Error(ErrorCode::kRefused,
                    "The job cannot be stored: " + std::string(description.summary.reason.str()));
  mode_ = make_source_mode(context_.base, JobOperation::snapshot(job_->record().spec, job_->incarnation()));
  CKPT_CO_TRYV(co_await mode_->check(job_));
  co_await mode_->release();  // called here, because the mover reads host state after all of it exists
  CKPT_CO_TRYV(co_await open_session());
  CKPT_CO_TRYV(co_await export_memory());
  CKPT_CO_TRYV(start_copy(full));
  co_return co_await wait_for(ready_, Clock::time_point::max());
}

Task<Result<void>> SnapshotSession::open_session() {
  CKPT_CO_TRY(process, context_.base.gpus.mover_of(job_->gpu()));
  CKPT_CO_TRYV(co_await process->ready(context_.base.config.mover_timeout));
  CKPT_CO_TRY(request, session_order(mover::Purpose::kSnapshot, wire::Side::kSource, job_->incarnation()));
  MoverSession::Handlers handlers;
  handlers.event = [weak = weak_from_this()](mover::Packet packet) {
    if (auto self = weak.lock()) self->on_mover(std::move(packet));
  };
  handlers.failed = [weak = weak_from_this()](Error error) {
    auto self = weak.lock();
    if (!self) return;
    self->failure_ = std::move(error);
    self->arrived_.notify();
  };
  CKPT_CO_TRY(session, MoverSession::open(context_.base.executor, process, std::move(request),
                                          context_.base.config.mover_timeout, std::move(handlers)));
  session_ = session;
  co_return ok();
}

Task<Result<void>> SnapshotSession::export_memory() {
  MemoryExport::Settings settings;
  settings.timeout = context_.base.config.keeper_timeout;
  settings.failed = [weak = weak_from_this()](Error error) {
    auto self = weak.lock();
    if (!self) return;
    self->failure_ = std::move(error);
    self->arrived_.notify();
  };
  const auto keeper = job_->keeper();  // null if the job ended during the mover's preparation
  if (!keeper) co_return Error(ErrorCode::kUnavailable, "The job ended before its memory was exported");
  export_ = MemoryExport::create(keeper, session_, std::move(settings));
  CKPT_CO_TRYV(co_await export_->run(context_.base.executor));
  co_return ok();
}

Result<void> SnapshotSession::start_copy(bool full) {
  image::StoredJob stored;
  stored.spec = request_.spec;
  stored.spec.incarnation = job_->incarnation();
  stored.spec.ranks = job_->record().spec.ranks;
  stored.node = context_.base.config.node;
  stored.payload = mode_->payload();
  stored.sequence = request_.sequence;
  stored.set = request_.set;
  CKPT_TRY(model, context_.base.gpus.model_of(job_->gpu()));
  stored.gpu_model = model;
  const std::vector<std::byte> record = wire::encode(stored);
  CKPT_TRY(file, make_memory_file("stored-job", record.size()));
  CKPT_TRYV(write_all(file.get(), record));
  mover::StartSnapshot start;
  start.folder = place_.path;
  start.image_job = request_.image_job;
  start.keep = request_.keep;
  start.staging_bytes = std::uint64_t{context_.base.config.snapshot_staging_mib} << 20;
  start.checkpoint_store_limit_bytes = place_.limit_bytes;
  start.access = place_.access;
  start.slowdown_permille = stays() ? 0 : kSlowdownPermille;
  start.full = full;
  start.first_version = request_.first_version;
  start.record_bytes = record.size();
  std::vector<UniqueFd> descriptors;
  descriptors.push_back(std::move(file));
  return session_->send(std::move(start), std::move(descriptors));
}

void SnapshotSession::on_mover(mover::Packet packet) {
  if (auto* ready = std::get_if<mover::SnapshotReady>(&packet.message)) {
    ready_ = std::move(*ready);
    notify_watchers();
  } else if (auto* staged = std::get_if<mover::SnapshotStaged>(&packet.message)) {
    staged_ = std::move(*staged);
  } else if (auto* done = std::get_if<mover::SnapshotDone>(&packet.message)) {
    done_ = std::move(*done);
  } else if (std::holds_alternative<mover::DroppedRegions>(packet.message)) {
    mover_released_ = true;
  } else {
    return;
  }
  arrived_.notify();
}

template <class T>
Task<Result<void>> SnapshotSession::wait_for(const std::optional<T>& what, Clock::time_point until) {
  while (!what) {
    if (failure_) co_return *failure_;
    if (giving_way_ && job_held_ && !paused_) co_return cancelled_ ? given_up() : gave_way();
    // A canceled snapshot returns only after all chunks are staged. Until that time the mover reads the job's
    // memory, which must not change.
    if (cancelled_ && staged_) co_return given_up();
    const bool woken = co_await arrived_.wait(until);
    if (!woken && !what)
      co_return Error(ErrorCode::kTimedOut,
                      "The mover did not copy the job's memory in time, so the snapshot was canceled. More "
                      "staging memory (snapshot_staging_mib) may help");
  }
  co_return ok();
}

Task<Result<void>> SnapshotSession::wait_for_barrier() {
  bool in_time = true;
  while (!barrier_ && in_time) {
    if (failure_) co_return *failure_;
    if (giving_way_) co_return cancelled_ ? given_up() : gave_way();
    if (is_released_) co_return rank_is_over();
    in_time = co_await wait_for_order();
  }
  if (barrier_) co_return ok();
  co_return Error(ErrorCode::kTimedOut, "The coordinator did not choose a barrier for the ranks within " +
                                            std::to_string(kForOrders.count()) + " s");
}

Task<bool> SnapshotSession::wait_for_order() {
  (void)co_await arrived_.wait(ordered_ + kForOrders);
  co_return Clock::now() < ordered_ + kForOrders;
}

Task<> SnapshotSession::lift_stop() {
  auto self = shared_from_this();
  const auto keeper = job_->keeper();
  if (!std::exchange(is_stopped_, false) || !keeper) co_return;
  // The keeper refuses the order if the rank already runs again.
  (void)co_await keeper->stop_at(request_.set, 0);
}

void SnapshotSession::notify_watchers() {
  for (AsyncEvent* watcher : watchers_) watcher->notify();
}

Task<Result<wire::RankGathered>> SnapshotSession::wait_until_ready() {
  auto self = shared_from_this();
  AsyncEvent changed(context_.base.executor);
  watchers_.push_back(&changed);
  while (!ready_ && !is_over_) co_await changed.wait(Clock::time_point::max());
  watchers_.remove(&changed);
  if (is_over_) co_return rank_is_over();
  co_return wire::RankGathered();
}

Task<Result<wire::RankGathered>> SnapshotSession::stop_at(std::uint64_t barrier) {
  auto self = shared_from_this();
  const auto keeper = job_->keeper();
  if (is_over_ || !keeper) co_return rank_is_over();
  is_stopped_ = true;
  CKPT_CO_TRY(counted, co_await keeper->stop_at(request_.set, barrier));
  wire::RankGathered answer;
  answer.stop_at = counted.stop_at;
  answer.barriers = counted.barriers;
  co_return answer;
}

Task<Result<wire::RankGathered>> SnapshotSession::gather(wire::GatherRank order) {
  auto self = shared_from_this();
  ordered_ = Clock::now();
  arrived_.notify();
  switch (order.act) {
    case wire::GatherAct::kReady:
      co_return co_await wait_until_ready();
    case wire::GatherAct::kStopAt:
      co_return co_await stop_at(order.barrier);
    case wire::GatherAct::kPauseAt:
      if (is_over_ || order.barrier == 0) co_return rank_is_over();
      barrier_ = order.barrier;
      arrived_.notify();
      co_return wire::RankGathered();
    case wire::GatherAct::kGoOn: {
      is_released_ = true;
      arrived_.notify();
      const AsyncMutex::Held free = co_await job_turn_.acquire();
      co_return wire::RankGathered();
    }
    case wire::GatherAct::kInvalid:
      break;
  }
  co_return Error(ErrorCode::kInvalidArgument, "A rank does not accept this order");
}

Task<> SnapshotSession::hold() {
  auto self = shared_from_this();
  job_->add_waiter(&arrived_);
  bool in_time = true;
  while (in_time && !is_released_ && !giving_way_ && !job_->ended()) in_time = co_await wait_for_order();
  job_->remove_waiter(&arrived_);
  if (!in_time)
    spdlog::warn(
        "rank resumes: job {} reason the coordinator did not decide in time whether the rank is suspended",
        wire::job_text(request_.job));
  if (!job_->ended()) (void)co_await go_on();
  is_holding_ = false;
  job_held_.reset();
}

// Passes the barrier. The job continues after every failure.
Task<Result<void>> SnapshotSession::pass_barrier() {
  CKPT_CO_TRYV(co_await pause());
  auto saved = co_await save();
  if (saved && stays()) co_return ok();
  // Memory that is filled again when the job continues in place must not be held twice.
  if (!context_.base.remap.imports()) {
    if (saved) co_await mover_lets_go();
    if (!saved) co_await release_memory();
  }
  CKPT_CO_TRYV(co_await go_on());
  if (!saved) co_return saved;
  fault_point(FaultPoint::kSnapshotResumed);
  co_await mover_lets_go();
  co_await release_memory();
  job_held_.reset();
  co_return ok();
}

Task<Result<void>> SnapshotSession::pause() {
  if (giving_way_) co_return cancelled_ ? given_up() : gave_way();
  auto keeper = job_->keeper();
  if (!keeper) co_return Error(ErrorCode::kUnavailable, "The job has ended");
  pausing_ = keeper->begin_pause(barrier_.value_or(0));
  asio::steady_timer limit(context_.base.executor, context_.base.config.pause_timeout);
  limit.async_wait([weak = weak_from_this()](boost::system::error_code cancelled) {
    const auto self = weak.lock();
    if (!cancelled && self && self->pausing_) self->pausing_->cancel();
  });
  auto state = co_await keeper->finish_pause(*pausing_);
  limit.cancel();
  pausing_.reset();
  if (state) {
    paused_ = *std::move(state);
    barrier_ns_ = paused_->paused.barrier_entry_ns;
    job_->set_phase(local::Phase::kPaused);
    report_.barrier_ms = wall_clock_ms() - (now_ns() - barrier_ns_) / 1'000'000;
    fault_point(FaultPoint::kSnapshotPaused);
    co_return ok();
  }
  if (state.error().code() != ErrorCode::kAborted) co_return std::move(state).error();
  // If a pause is withdrawn before the barrier, the rank notices nothing. A rank that reached the barrier at
  // the same moment continues.
  (void)co_await go_on();
  if (giving_way_) co_return cancelled_ ? given_up() : gave_way();
  co_return Error(ErrorCode::kTimedOut, "The job reached no barrier within " +
                                            std::to_string(context_.base.config.pause_timeout.count()) +
                                            " ms");
}

Task<Result<void>> SnapshotSession::save() {
  mover::FinalRound round;
  round.barrier_entered_ns = barrier_ns_;
  round.paused_ns = now_ns();
  CKPT_CO_TRYV(session_->send(std::move(round)));
  wire::SourceReport ignored;  // ignored, because a snapshot's report contains only the sum
  CKPT_CO_TRY(state, co_await mode_->save(job_, std::move(*paused_), ignored));
  mover::SnapshotHost host;
  host.host_state_bytes = state.bytes;
  std::vector<UniqueFd> descriptors;
  if (state.bytes > 0) descriptors.push_back(std::move(state.file));
  CKPT_CO_TRYV(session_->send(std::move(host), std::move(descriptors)));
  fault_point(FaultPoint::kSnapshotSaved);
  CKPT_CO_TRYV(co_await wait_for(staged_, Clock::now() + context_.base.config.pause_timeout));
  report_.state_bytes = staged_->state_bytes;
  report_.dirty_bytes = staged_->dirty_bytes;
  report_.waited_bytes = staged_->waited_bytes;
  co_return ok();
}

// Continues the job. Only this node has the job, so the step is repeated as long as the job runs.
Task<Result<void>> SnapshotSession::go_on() {
  auto self = shared_from_this();
  paused_.reset();
  for (Milliseconds pause = kFirstBackoff;; pause = std::min(pause * 2, kMaxBackoff)) {
    const auto ended =
        Error(ErrorCode::kUnavailable, "The job ended while it was paused: " + job_->end_reason());
    if (job_->ended() || !job_->keeper()) co_return ended;
    auto back = co_await mode_->go_back(job_);
    const auto keeper = job_->keeper();
    if (!keeper) co_return ended;
    if (back) {
      local::Resume resume;
      resume.incarnation = job_->incarnation();
      resume.deadline_ns = local::kNoDeadline;
      auto running = co_await keeper->resume(resume, UniqueFd{});
      if (running) {
        if (barrier_ns_ != 0) report_.pause_ns = running->resumed_ns - barrier_ns_;
        job_->runs_as(job_->incarnation());
        co_return ok();
      }
      back = std::move(running).error();
    }
    spdlog::error("job not resumed yet: job {} again_in_ms {} reason {}", wire::job_text(job_->id()),
                  pause.count(), back.error().to_string());
    AsyncEvent nobody(context_.base.executor);
    co_await nobody.wait(Clock::now() + pause);
  }
}

Task<> SnapshotSession::mover_lets_go() {
  auto self = shared_from_this();
  while (!mover_released_ && !failure_) co_await arrived_.wait(Clock::time_point::max());
}

Task<> SnapshotSession::release_memory() {
  auto memory = std::exchange(export_, nullptr);
  if (memory) co_await memory->stop();
}

Task<> SnapshotSession::release_session() {
  auto self = shared_from_this();
  auto session = std::exchange(session_, nullptr);
  co_await release_memory();
  if (session) co_await session->end();
}

Task<> SnapshotSession::give_way() {
  auto self = shared_from_this();
  giving_way_ = true;
  if (pausing_) pausing_->cancel();
  arrived_.notify();
  const AsyncMutex::Held free = co_await job_turn_.acquire();
}

Task<Result<void>> SnapshotSession::cancel() {
  auto self = shared_from_this();
  giving_way_ = cancelled_ = true;
  if (pausing_) pausing_->cancel();
  arrived_.notify();
  const AsyncMutex::Held over = co_await whole_turn_.acquire();
  if (left_) co_return Error(ErrorCode::kRefused, "The job is already suspended to its image");
  co_return ok();
}

}  // namespace ckpt::agent::protect
