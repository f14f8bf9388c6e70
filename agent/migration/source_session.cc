// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/source_session.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "agent/migration/source_check.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {
namespace {

constexpr Milliseconds kLimitLook{50};  // interval of the checks whether `set` has changed the limit, or the
                                        // migration has ended
constexpr Milliseconds kFirstBackoff{100};
constexpr Milliseconds kMaxBackoff{5000};

}  // namespace

SourceSession::SourceSession(MigrationContext& context, SessionPort& events, migration::HandoverInfo info)
    : SourceSession(context, events, info, make_source_mode(context, JobOperation::migration(info))) {}

SourceSession::SourceSession(MigrationContext& context, SessionPort& events, migration::HandoverInfo info,
                             std::unique_ptr<SourceMode> mode)
    : context_(context),
      events_(events),
      info_(std::move(info)),
      key_{info_.migration, wire::Role::kSource},
      mode_(std::move(mode)),
      budget_(context),
      saving_(context.executor),
      host_path_(mode_->sends_host_state() ? HostStatePath::kAfterSave : HostStatePath::kNone) {
  if (auto job = context_.jobs.running_as(info_.job, info_.base)) attach_to(job);
}

SourceSession::~SourceSession() {
  if (job_) job_->unlisten(listener_);
}

std::shared_ptr<Job> SourceSession::job() const {
  return job_;
}

void SourceSession::emit(migration::SourceEvent event) {
  events_.on_event(key_, std::move(event));
}

void SourceSession::fail(const Error& error) {
  if (is_over()) return;
  spdlog::warn("migration fails at the source: id {} reason {}", wire::migration_text(info_.migration),
               error.to_string());
  const bool is_first = !std::exchange(has_failed_, true);
  if (stage_ == Stage::kPreparing) {
    // A mover that exits fails both the session and the step that waits for it, so only the first failure is
    // reported.
    if (is_first) emit(migration::SourceRefused(wire::Reason(error)));
  } else {
    emit(migration::EngineFailed(wire::Reason(error)));
  }
}

void SourceSession::attach_to(const std::shared_ptr<Job>& job) {
  job_ = job;
  listener_ = job_->listen([this](const local::Body& body) { on_local(body); });
}

void SourceSession::on_local(const local::Body& body) {
  if (std::holds_alternative<local::RankExited>(body)) {
    if (stage_ != Stage::kFreed)
      emit(migration::InstanceDied(wire::Reason(ErrorCode::kAborted, "The job's process has exited")));
  } else if (std::holds_alternative<local::RankStopped>(body)) {
    if (job_) emit(migration::InstanceStopped(job_->incarnation()));
  }
}

void SourceSession::perform(const migration::Action& action) {
  const auto& executor = context_.executor;
  auto self = shared_from_this();
  if (std::holds_alternative<migration::PrepareSource>(action)) {
    control::spawn(executor, "source prepare", self->prepare());
  } else if (const auto* start = std::get_if<migration::StartPrecopy>(&action)) {
    start_precopy(start->peer_payload);
  } else if (std::holds_alternative<migration::PauseJob>(action)) {
    control::spawn(executor, "source pause", self->pause(0));
  } else if (std::holds_alternative<migration::RunFinalRound>(action)) {
    if (host_path_ != HostStatePath::kAfterSave) run_final_round(HostState());
    control::spawn(executor, "source save", self->save());
  } else if (std::holds_alternative<migration::ReleaseManifest>(action)) {
    advance_manifest(Manifest::kAwaitsBarrier, Manifest::kAwaitsSave);
  } else if (std::holds_alternative<migration::StopCopy>(action)) {
    control::spawn(executor, "source stop", self->stop_copy());
  } else if (const auto* run = std::get_if<migration::RunInstance>(&action)) {
    control::spawn(executor, "source resume", self->run_instance(run->k, run->deadline));
  } else if (std::holds_alternative<migration::FreeSource>(action)) {
    control::spawn(executor, "source free", self->free());
  }
}

Task<> SourceSession::prepare() {
  auto self = shared_from_this();
  stage_ = Stage::kPreparing;
  co_await context_.holders.acquire_exclusive(info_.job);
  auto prepared = co_await prepare_memory();
  if (!prepared) fail(prepared.error());
  if (stage_ == Stage::kPreparing) {
    stage_ = Stage::kPrepared;
    if (prepared) emit(migration::SourceReady(mode_->payload()));
    co_return;
  }
  if (stage_ == Stage::kAbandoned) stage_ = Stage::kStopped;
  co_await release_memory();
}

Task<Result<void>> SourceSession::prepare_memory() {
  auto plan = wire::decode_plan(info_.plan);
  if (!plan) co_return std::move(plan).error();
  if (!job_) {
    if (auto job = context_.jobs.running_as(info_.job, info_.base)) attach_to(job);
  }
  CKPT_CO_TRY(summary, co_await check_source(*mode_, job_, info_.job));
  budget_.set_work(mode_->pause_work(*job_, summary), plan->last_pause);
  auto opened = co_await open_session(job_, *std::move(plan));
  if (!opened) co_return std::move(opened).error();
  MemoryExport::Settings settings;
  settings.timeout = context_.config.keeper_timeout;
  settings.retain_descriptors = true;
  settings.failed = [weak = weak_from_this()](Error error) {
    if (auto self = weak.lock()) self->fail(error);
  };
  const auto keeper = job_->keeper();  // null if the job ended during the mover's preparation
  if (!keeper) co_return Error(ErrorCode::kUnavailable, "The job ended before its memory was exported");
  export_ = MemoryExport::create(keeper, session_, std::move(settings));
  auto exported = co_await export_->run(context_.executor);
  if (!exported) co_return std::move(exported).error();
  co_return ok();
}

Task<Result<void>> SourceSession::open_session(std::shared_ptr<Job> job, wire::MigrationPlan plan) {
  budget_.set_options(plan.options);
  within_node_ = plan.source_node == plan.target_node;
  CKPT_CO_TRY(process, context_.gpus.mover_of(job->gpu()));
  CKPT_CO_TRYV(co_await process->ready(context_.config.mover_timeout));
  mover::OpenSession request;
  request.session = mover::SessionKey(info_.migration, 0);
  request.side = wire::Side::kSource;
  request.incarnation = info_.base + 1;
  request.fingerprint_key = plan.fingerprint_key;
  request.session_token = plan.session_token;
  request.network = plan.network;
  request.paths = plan.paths;
  MoverSession::Handlers handlers;
  handlers.event = [weak = weak_from_this()](mover::Packet packet) {
    if (auto self = weak.lock()) self->on_mover(std::move(packet));
  };
  handlers.failed = [weak = weak_from_this()](Error error) {
    if (auto self = weak.lock()) self->fail(error);
  };
  CKPT_CO_TRY(session, MoverSession::open(context_.executor, process, std::move(request),
                                          context_.config.mover_timeout, std::move(handlers)));
  session_ = session;
  co_return ok();
}

void SourceSession::start_precopy(const wire::Bytes& payload) {
  auto endpoint = wire::decode<EndpointPayload>(payload);
  if (!endpoint) return fail(endpoint.error());
  if (!session_) return fail(Error(ErrorCode::kInternal, "The mover has no session that could be started"));
  if (auto fits = mode_->check_target(*endpoint); !fits) return fail(fits.error());
  mover::StartSource start;
  budget_.estimate(endpoint->costs);
  const PauseEstimate& estimate = budget_.estimated();
  if (budget_.is_exceeded())
    return fail(
        Error(ErrorCode::kRefused, "The limit cannot be met: " + too_long(estimate.facts, budget_.limit())));
  start.addresses = std::move(endpoint->addresses);
  start.options = budget_.options();
  start.fixed_cost_ns = estimate.fixed();
  start.beside_copy_ns = estimate.beside;
  start.same_host = within_node_;
  if (auto sent = session_->send(std::move(start)); !sent) return fail(sent.error());
  if (auto given = send_host_state_file(endpoint->reads_memory_log); !given) fail(given.error());
}

Result<void> SourceSession::send_host_state_file(bool target_reads_log) {
  auto state = mode_->growing_host_state(
      [weak = weak_from_this()](std::uint64_t filled, bool whole) {
        if (auto self = weak.lock()) self->host_grew(filled, whole);
      },
      target_reads_log);
  if (!state) return ok();
  mover::HostStateFile message;
  message.limit = state->limit;
  message.expected = state->expected;
  std::vector<UniqueFd> descriptors;
  descriptors.push_back(std::move(state->file));
  CKPT_TRYV(session_->send(message, std::move(descriptors)));
  host_path_ = HostStatePath::kGrows;
  return ok();
}

void SourceSession::host_grew(std::uint64_t filled, bool whole) {
  if (!session_ || is_over()) return;
  mover::HostGrew message;
  message.filled = filled;
  message.whole = whole;
  if (auto sent = session_->send(message); !sent) fail(sent.error());
}

void SourceSession::on_mover(mover::Packet packet) {
  if (is_over() && !report_) return;
  if (const auto* progress = std::get_if<mover::Progress>(&packet.message)) {
    if (is_over()) return;  // a closed transfer must not be counted a second time
    mode_->host_state_sent(progress->host_state_bytes);
    mover_estimate_ns_ = progress->estimate_ns;
    report_progress(*progress);
  } else if (std::holds_alternative<mover::FirstRoundDone>(packet.message)) {
    emit(migration::FirstRoundDone{});
  } else if (const auto* ready = std::get_if<mover::Converged>(&packet.message)) {
    mover_estimate_ns_ = ready->estimate_ns;
    control::spawn(context_.executor, "source converge", converge());
  } else if (const auto* lost = std::get_if<mover::DidNotConverge>(&packet.message)) {
    const auto pause = budget_.with_copy(lost->estimate_ns);
    const std::string cause = lost->estimate_ns > budget_.limit() && budget_.has_work()
                                  ? "The limit cannot be met: after " + std::to_string(lost->rounds) +
                                        " rounds " + too_long(pause, budget_.limit())
                                  : "The copy does not converge: " + lost->reason;
    fail(Error(ErrorCode::kRefused, cause));
  } else if (const auto* sent = std::get_if<mover::FinalSent>(&packet.message)) {
    on_counters(sent->counters, sent->final_received_ns, sent->last_ack_ns);
  } else if (const auto* done = std::get_if<mover::FinalDone>(&packet.message)) {
    on_counters(done->counters, done->final_received_ns, done->last_ack_ns);
    verified_received_ns_ = done->verified_heard_ns;
    emit(migration::FinalDataAcknowledged{});
  } else if (const auto* mismatch = std::get_if<mover::Mismatch>(&packet.message)) {
    spdlog::warn("fingerprint mismatch: id {} tensor {} chunk {} times {}",
                 wire::migration_text(info_.migration), mismatch->tensor, mismatch->chunk, mismatch->times);
  }
}

// Reports the progress of device memory, together with host memory that is sent before the pause.
void SourceSession::report_progress(const mover::Progress& progress) {
  const HostProgress host = mode_->host_progress();
  const std::uint64_t host_left = host.total_bytes - host.done_bytes;
  wire::MigrationProgress out;
  out.migration = info_.migration;
  out.round = progress.round;
  out.done_bytes = progress.done_bytes + host.done_bytes;
  out.total_bytes = progress.total_bytes + host.total_bytes;
  out.state_bytes = progress.state_bytes + host.total_bytes;
  out.sent_bytes = progress.sent_bytes;
  out.remaining_bytes = progress.remaining_bytes + host_left;
  out.dirty_bytes_per_second = progress.dirty_bytes_per_second;
  out.throughput_bytes_per_second = progress.throughput_bytes_per_second;
  out.estimate_ns = progress.estimate_ns;
  out.eta_ns = progress.eta_ns;
  out.wire_bytes_per_second = progress.wire_bytes_per_second;
  if (host_left > 0 && progress.wire_bytes_per_second > 0)
    out.eta_ns =
        std::max(out.eta_ns, static_cast<Nanos>(static_cast<double>(host_left) * 1e9 /
                                                static_cast<double>(progress.wire_bytes_per_second)));
  context_.reports.send(out);
}

// Waits until memory has converged. Device memory has converged already, but host memory may take longer.
// Afterwards the estimate includes how much host memory the job writes, and the mover has estimated the copy
// again.
Task<> SourceSession::converge() {
  auto self = shared_from_this();
  co_await mode_->settle_host_state();
  if (is_over() || !job_) co_return;
  budget_.revise(mode_->pause_work(*job_, job_->summary()));
  const wire::PauseFacts pause = budget_.with_copy(mover_estimate_ns_);
  if (budget_.gives_up() && budget_.has_work() && pause.ns.total() > budget_.limit())
    co_return fail(
        Error(ErrorCode::kRefused, "The limit cannot be met: " + too_long(pause, budget_.limit())));
  emit(migration::PrecopyConverged{});
}

void SourceSession::on_counters(const mover::SourceCounters& counters, Nanos final_received_ns,
                                Nanos last_ack_ns) {
  if (!report_) return;
  wire::SourceReport& report = *report_;
  // A dump comes before the final round, so the agent's own time is used.
  if (report.host_saved_ns == 0) report.paused_ns = final_received_ns;
  report.last_ack_ns = last_ack_ns;
  report.clock_offset_ns = counters.clock_offset_ns;
  report.rounds = counters.rounds;
  report.state_bytes = counters.state_bytes;
  report.sent_bytes = counters.sent_bytes;
  report.wire_bytes = counters.wire_bytes;
  report.dirty_bytes = counters.dirty_bytes;
  report.final_bytes = counters.final_bytes;
  report.host_bytes = counters.host_bytes;
  report.host_ahead_bytes = counters.host_ahead_bytes;
  if (report.host_saved_ns != 0)
    report.host_read_bytes_per_second = faster(context_.pauses->costs().memory().read, report.host_bytes,
                                               report.host_saved_ns - report.context_saved_ns);
  report.resent_chunks = counters.resent_chunks;
  report.link_bytes_per_second = counters.link_bytes_per_second;
  report.scan_bytes_per_second = counters.scan_bytes_per_second;
  report.scan_ns = counters.scan_ns;
  report.copy_ns = counters.copy_ns;
  report.estimate_ns = counters.estimate_ns;
  report.converged = true;
  if (budget_.has_work() && counters.estimate_ns > 0) {
    report.estimate = budget_.with_copy(counters.estimate_ns);
    report.estimate_ns = report.estimate->ns.total();
  }
}

void SourceSession::pause_at(std::uint64_t barrier) {
  control::spawn(context_.executor, "source pause", pause(barrier));
}

// Pauses the rank. `barrier` 0 means the next barrier.
Task<> SourceSession::pause(std::uint64_t barrier) {
  auto self = shared_from_this();
  if (is_over()) co_return;
  auto keeper = job_->keeper();
  if (!keeper) co_return;
  auto exchange = keeper->begin_pause(barrier);
  pausing_ = std::move(exchange);
  auto state = co_await keeper->finish_pause(*pausing_);
  pausing_.reset();
  if (!state) {
    if (is_over()) co_return;
    co_return fail(state.error());
  }
  paused_ = *std::move(state);
  job_->set_phase(local::Phase::kPaused);
  report_.emplace();
  report_->migration = info_.migration;
  report_->barrier_entered_ns = paused_->paused.barrier_entry_ns;
  report_->paused_ns = now_ns();
  emit(migration::JobPaused{});
  if (budget_.gives_up()) control::spawn(context_.executor, "source limit", keep_limit());
}

// Watches the limit of the pause. The machine decides, because a job that the target has committed continues
// there.
Task<> SourceSession::keep_limit() {
  auto self = shared_from_this();
  while (!is_over() && verified_received_ns_ == 0) {
    const Nanos left = report_->barrier_entered_ns + budget_.limit() - now_ns();
    if (left <= 0) {
      co_return fail(Error(ErrorCode::kAborted,
                           "The pause exceeded its limit of " +
                               std::to_string(budget_.limit() / kNanosPerMs) +
                               " ms before the target had all data: the job continues at the source"));
    }
    AsyncEvent nobody(context_.executor);
    co_await nobody.wait(std::chrono::steady_clock::now() +
                         std::min<std::chrono::nanoseconds>(std::chrono::nanoseconds(left), kLimitLook));
  }
}

// Saves the state other than device memory. The manifest, which lets the target commit, waits for this state.
Task<> SourceSession::save() {
  auto self = shared_from_this();
  const AsyncMutex::Held turn = co_await saving_.acquire();
  if (is_over() || !paused_ || !report_) co_return;
  auto saved = co_await mode_->save(job_, std::move(*paused_), *report_);
  if (is_over()) co_return;
  // The error is never a refusal, whatever its cause is, because the job was already paused.
  if (!saved) {
    co_return fail(Error(ErrorCode::kAborted, "The job cannot be saved at the source")
                       .caused_by(std::move(saved).error()));
  }
  if (host_path_ == HostStatePath::kAfterSave) run_final_round(*std::move(saved));
  advance_manifest(Manifest::kAwaitsSave, Manifest::kAwaitsBarrier);
}

void SourceSession::run_final_round(HostState state) {
  if (!session_ || is_over() || !report_) return;
  mover::FinalRound round;
  round.barrier_entered_ns = report_->barrier_entered_ns;
  round.paused_ns = now_ns();
  round.host_state_bytes = state.bytes;
  round.host_state_grows = host_path_ == HostStatePath::kGrows;
  std::vector<UniqueFd> descriptors;
  if (state.bytes > 0) descriptors.push_back(std::move(state.file));
  if (auto sent = session_->send(std::move(round), std::move(descriptors)); !sent) fail(sent.error());
}

// Sends the manifest when both of its conditions are met.
void SourceSession::advance_manifest(Manifest waiting_for_this, Manifest waits_for_other) {
  manifest_ = manifest_ == waiting_for_this ? Manifest::kReleased : waits_for_other;
  if (manifest_ != Manifest::kReleased || !session_ || is_over()) return;
  if (auto sent = session_->send(mover::ReleaseManifest{}); !sent) fail(sent.error());
}

Task<> SourceSession::run_instance(wire::Incarnation k, std::optional<Nanos> deadline) {
  auto self = shared_from_this();
  if (!job_) {
    if (auto job = context_.jobs.running_as(info_.job, info_.base)) attach_to(job);
  }
  // The agent must know whether the job still runs.
  if (job_) co_await job_->known();
  if (stage_ == Stage::kFreed) co_return;
  if (!job_ || job_->ended() || !job_->keeper()) {
    co_return emit(
        migration::InstanceDied(wire::Reason(ErrorCode::kAborted, "The job's process has exited")));
  }
  local::Resume resume;
  resume.incarnation = k;
  resume.deadline_ns = deadline.value_or(local::kNoDeadline);
  // Releases the session's memory in the same way as the target. The mover's session must not also hold
  // memory that is copied when the job returns to this node.
  if (stage_ == Stage::kStopped && !context_.remap.imports()) co_await release_memory();
  const std::uint64_t order = ++orders_;
  const AsyncMutex::Held turn = co_await job_->resume_turn().acquire();
  if (!co_await go_back(order)) co_return;
  if (!job_->keeper()) co_return;  // the job ended in the meantime, which its listener has reported
  // The keeper also accepts this order for a rank that already runs, and for a rank that has not reached its
  // barrier yet.
  auto running = co_await job_->keeper()->resume(resume, UniqueFd{});
  if (!running) {
    spdlog::error("job not resumed: job {} reason {}", wire::job_text(info_.job),
                  running.error().to_string());
    co_return;
  }
  paused_.reset();
  job_->runs_as(k);
  emit(migration::InstanceRuns(k));
}

// Lets the job go back. Only this node has the job, so the step is repeated as long as the job runs. A
// service of the node (the context helper) may have exited and started again. Returns false if the job ended,
// or if `order` is no longer the last order.
Task<bool> SourceSession::go_back(std::uint64_t order) {
  auto self = shared_from_this();
  for (Milliseconds pause = kFirstBackoff;; pause = std::min(pause * 2, kMaxBackoff)) {
    // A save in progress finishes first, because CRIU must not dump a process that continues.
    const AsyncMutex::Held turn = co_await saving_.acquire();
    auto back = co_await mode_->go_back(job_);
    if (back) co_return order == orders_;
    if (job_->ended() || !job_->keeper()) co_return false;  // the job's listener has reported the end
    spdlog::error("job not resumed yet: job {} again_in_ms {} reason {}", wire::job_text(info_.job),
                  pause.count(), back.error().to_string());
    AsyncEvent nobody(context_.executor);
    co_await nobody.wait(std::chrono::steady_clock::now() + pause);
    if (order != orders_ || stage_ == Stage::kFreed || job_->ended() || !job_->keeper()) co_return false;
  }
}

Task<> SourceSession::stop_copy() {
  auto self = shared_from_this();
  if (stage_ < Stage::kAbandoned) stage_ = stage_ == Stage::kPreparing ? Stage::kAbandoned : Stage::kStopped;
  if (pausing_) {
    pausing_->cancel();
    if (job_ && job_->keeper()) {
      // If a pause is withdrawn before the barrier, the keeper answers at once and the rank notices nothing.
      // A rank that reached the barrier at the same moment continues.
      local::Resume resume;
      resume.incarnation = info_.base;
      auto running = co_await job_->keeper()->resume(resume, UniqueFd{});
      if (!running) spdlog::warn("pause not cancelled: reason {}", running.error().to_string());
    }
  }
  if (stage_ != Stage::kAbandoned) co_await release_memory();
}

Task<> SourceSession::release_memory() {
  auto self = shared_from_this();
  auto memory = std::exchange(export_, nullptr);
  auto session = std::exchange(session_, nullptr);
  if (memory) co_await memory->stop();
  if (session) co_await session->end(failure_reason_);
  if (memory) memory->close_descriptors();
  // A save in progress still writes into the file, so the function waits for the save.
  const AsyncMutex::Held turn = co_await saving_.acquire();
  co_await mode_->release();
}

Task<> SourceSession::free() {
  auto self = shared_from_this();
  if (stage_ == Stage::kFreed) co_return;
  stage_ = Stage::kFreed;
  if (!job_) {
    // After a restart, the record alone identifies the instance.
    if (auto job = context_.jobs.running_as(info_.job, info_.base)) attach_to(job);
  }
  if (report_ && verified_received_ns_ != 0) budget_.learn(*report_, verified_received_ns_);
  if (job_) co_await mode_->leave(job_);
  co_await release_memory();
}

void SourceSession::set_limits(std::int64_t max_downtime_ns, std::int64_t bandwidth) {
  budget_.set_limits(max_downtime_ns, bandwidth);  // a copy that has not started yet starts with these limits
  if (!session_ || is_over()) return;
  mover::MoverLimits limits;
  limits.max_downtime_ns = max_downtime_ns;
  limits.bandwidth_bytes_per_second = bandwidth;
  if (auto sent = session_->send(std::move(limits)); !sent) {
    spdlog::warn("limits not set: reason {}", sent.error().to_string());
  }
}

}  // namespace ckpt::agent
