// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/target_session.h"

#include <spdlog/spdlog.h>

#include "agent/migration/instance_end.h"
#include "agent/migration/target_check.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {
namespace {

constexpr std::uint32_t kMaxLostOrders = 5;

// Checks whether the rank still waits for its order to run.
bool waits_for_resume(const Job& job) {
  const local::Phase phase = job.phase();
  return phase == local::Phase::kStandbyReady || phase == local::Phase::kPaused ||
         phase == local::Phase::kDumped;
}

}  // namespace

TargetSession::TargetSession(MigrationContext& context, SessionPort& events, migration::HandoverInfo info)
    : TargetSession(context, events, info, make_target_mode(context, JobOperation::migration(info))) {}

TargetSession::TargetSession(MigrationContext& context, SessionPort& events, migration::HandoverInfo info,
                             std::unique_ptr<TargetMode> mode)
    : context_(context),
      events_(events),
      info_(std::move(info)),
      key_{info_.migration, wire::Role::kTarget},
      mode_(std::move(mode)),
      gate_(context.executor) {
  if (auto job = mode_->find()) attach_to(job);
}

TargetSession::~TargetSession() {
  if (job_) job_->unlisten(listener_);
}

void TargetSession::emit(migration::TargetEvent event) {
  events_.on_event(key_, std::move(event));
}

void TargetSession::fail(const Error& error) {
  if (is_over()) return;
  spdlog::warn("migration fails at the target: id {} reason {}", wire::migration_text(info_.migration),
               error.to_string());
  const bool is_first = !std::exchange(has_failed_, true);
  if (stage_ == Stage::kPreparing) {
    // A mover that exits fails both the session and the step that waits for it, so only the first failure is
    // reported.
    if (is_first) emit(migration::StandbyRefused(wire::Reason(error)));
  } else {
    emit(migration::EngineFailed(wire::Reason(error)));
  }
}

void TargetSession::attach_to(const std::shared_ptr<Job>& job) {
  job_ = job;
  listener_ = job_->listen([this](const local::Body& body) { on_local(body); });
}

void TargetSession::on_local(const local::Body& body) {
  if (const auto* exited = std::get_if<local::RankExited>(&body)) {
    // During the preparation, the coroutine that waits for the standby reports the standby's end, with its
    // last output.
    if (is_over() || stage_ == Stage::kPreparing || job_->leaving()) return;
    // A stopped instance has ended as ordered. Going back would run it again until the source also receives
    // the order to stop.
    end_ = is_clean_end(*exited) ? InstanceEnd::kFinished : InstanceEnd::kDied;
    if (!running_ && !opening_) report_end();
  } else if (std::holds_alternative<local::RankStopped>(body)) {
    emit(migration::InstanceStopped(job_->incarnation()));
  }
}

void TargetSession::report_end() {
  // An earlier agent may have let the instance run.
  if (ran_as_ == 0 && job_->record().ran) ran_as_ = job_->incarnation();
  if (end_ == InstanceEnd::kFinished && ran_as_ != 0) return emit(migration::InstanceFinished(ran_as_));
  emit(migration::InstanceDied(wire::Reason(ErrorCode::kAborted, "The instance at the target has exited")));
}

// Checks whether the instance has finished. An earlier agent may have let it run. An instance that was
// abandoned may have run under an earlier lease, but has not finished.
bool TargetSession::has_finished() const {
  if (!job_ || !job_->ended() || gave_up_) return false;
  const JobRecord& record = job_->record();
  return record.ran && !record.moved && (record.exit_code == 0 || job_->ended_on_request());
}

void TargetSession::perform(const migration::Action& action) {
  const auto& executor = context_.executor;
  auto self = shared_from_this();
  if (std::holds_alternative<migration::PrepareStandby>(action)) {
    stage_ = Stage::kPreparing;
    control::spawn(executor, "target prepare", self->prepare());
  } else if (const auto* run = std::get_if<migration::RunInstance>(&action)) {
    order_run(*run);
  } else if (const auto* start = std::get_if<migration::StartReceiving>(&action)) {
    if (!is_over()) stage_ = Stage::kComparing;
    control::spawn(executor, "target compare", self->compare(start->peer_payload));
  } else if (std::holds_alternative<migration::FreeTarget>(action)) {
    control::spawn(executor, "target free", self->free());
  }
  // The mover has listened since the instance was ready.
}

Task<> TargetSession::prepare() {
  auto self = shared_from_this();
  auto payload = co_await prepare_standby();
  if (!payload) fail(payload.error());
  if (stage_ == Stage::kPreparing) {
    stage_ = Stage::kPrepared;
    if (payload) emit(migration::StandbyReady(*std::move(payload)));
    co_return;
  }
  stage_ = Stage::kFreed;
  co_await free();
}

Task<Result<wire::Bytes>> TargetSession::prepare_standby() {
  auto plan = wire::decode_plan(info_.plan);
  if (!plan) co_return std::move(plan).error();
  const wire::MigrationPlan migration_plan = *std::move(plan);
  CKPT_CO_TRYV(check_plan(migration_plan));
  CKPT_CO_TRY(process, context_.gpus.mover_of(gpu_of(migration_plan.target_ranks)));
  process->start();  // creates the mover's context while the instance starts
  CKPT_CO_TRYV(co_await start_instance());
  CKPT_CO_TRYV(co_await process->ready(context_.config.mover_timeout));
  CKPT_CO_TRYV(co_await open_session(process, migration_plan));
  if (mode_->has_memory()) {
    CKPT_CO_TRYV(co_await export_memory());
  }
  CKPT_CO_TRY(addresses, co_await session_->listen());
  EndpointPayload payload = co_await describe_endpoint(context_);
  payload.addresses = std::move(addresses);
  const PauseLines lines = pause_lines(context_, JobOperation::migration(info_).pause_kind());
  payload.costs.assign(lines.begin(), lines.end());
  co_return wire::encode(payload);
}

Result<void> TargetSession::check_plan(const wire::MigrationPlan& plan) const {
  wire::JobSpec spec = plan.spec;
  spec.incarnation = info_.base + 1;
  spec.ranks = plan.target_ranks;
  if (spec.job != info_.job) return Error(ErrorCode::kProtocol, "The plan is for another job");
  return check_spec(context_.gpus, spec);
}

Task<Result<void>> TargetSession::start_instance() {
  CKPT_CO_TRY(job, co_await mode_->start());
  if (is_over()) {
    co_await mode_->end(job);
    co_await mode_->free(job);
    co_return Error(ErrorCode::kAborted, "The migration was aborted");
  }
  if (job) attach_to(job);
  co_return co_await mode_->ready(job);
}

Task<Result<void>> TargetSession::export_memory() {
  MemoryExport::Settings settings;
  settings.timeout = context_.config.keeper_timeout;
  settings.failed = [weak = weak_from_this()](Error error) {
    if (auto self = weak.lock()) self->fail(error);
  };
  const auto keeper = job_->keeper();  // null if the standby ended during the mover's preparation
  if (!keeper) co_return Error(ErrorCode::kUnavailable, "The standby ended before its memory was exported");
  export_ = MemoryExport::create(keeper, session_, std::move(settings));
  CKPT_CO_TRY(summary, co_await export_->run(context_.executor));
  spdlog::info("standby ready: id {} tensors {} regions {}", wire::migration_text(info_.migration),
               summary.tensors, summary.regions);
  co_return ok();
}

Task<Result<void>> TargetSession::open_session(std::shared_ptr<MoverProcess> process,
                                               wire::MigrationPlan plan) {
  mover::OpenSession request;
  request.session = mover::SessionKey(info_.migration, 0);
  request.side = wire::Side::kTarget;
  request.incarnation = info_.base + 1;
  request.fingerprint_key = plan.fingerprint_key;
  request.session_token = plan.session_token;
  request.network = plan.network;
  request.paths = plan.paths;
  request.makes_memory = !mode_->has_memory();
  request.is_new_program = !plan.options.new_argv.empty();
  request.allowed_differences = plan.options.allowed_differences;
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

void TargetSession::on_mover(mover::Packet packet) {
  if (is_over()) return;
  if (const auto* mismatch = std::get_if<mover::Mismatch>(&packet.message)) {
    spdlog::warn("fingerprint mismatch: id {} tensor {} chunk {} times {}",
                 wire::migration_text(info_.migration), mismatch->tensor, mismatch->chunk, mismatch->times);
    return;
  }
  const auto* verified = std::get_if<mover::Verified>(&packet.message);
  if (verified != nullptr && !handling_ && stage_ != Stage::kComparing)
    return on_verified(*verified, std::move(packet.fds));
  if (verified == nullptr && !std::holds_alternative<mover::MadeRegions>(packet.message) &&
      !std::holds_alternative<mover::DroppedRegions>(packet.message))
    return;
  arrived_.push_back(std::move(packet));
  if (!handling_) control::spawn(context_.executor, "target memory", handle_arrived());
}

// Passes the memory that the mover created to the instance's keeper, and compares the source's description of
// the job. Both steps precede the report of VERIFIED.
Task<> TargetSession::handle_arrived() {
  auto self = shared_from_this();
  handling_ = true;
  while (!arrived_.empty() && !is_over()) {
    if (stage_ == Stage::kComparing && std::holds_alternative<mover::Verified>(arrived_.front().message))
      break;
    mover::Packet packet = std::move(arrived_.front());
    arrived_.pop_front();
    if (const auto* verified = std::get_if<mover::Verified>(&packet.message)) {
      on_verified(*verified, std::move(packet.fds));
      continue;
    }
    auto handled = co_await handle(std::move(packet));
    if (!handled) fail(handled.error());
  }
  handling_ = false;
}

Task<Result<void>> TargetSession::handle(mover::Packet packet) {
  if (auto* made = std::get_if<mover::MadeRegions>(&packet.message)) {
    auto regions = std::move(made->regions);
    co_return co_await mode_->import_memory(job_, std::move(regions), std::move(packet.fds));
  }
  auto gone = std::get<mover::DroppedRegions>(std::move(packet.message)).regions;
  released_ += gone.size();
  CKPT_CO_TRYV(co_await mode_->drop_memory(job_, std::move(gone)));
  mover::RegionsLetGo answer;
  answer.regions = released_;
  if (!session_) co_return ok();
  co_return session_->send(std::move(answer));
}

void TargetSession::on_verified(const mover::Verified& verified, std::vector<UniqueFd> descriptors) {
  if (has_failed_) return;  // memory may be missing here that the mover has verified
  HostState state(descriptors.empty() ? UniqueFd() : std::move(descriptors.front()),
                  verified.host_state_bytes);
  state.paused_ns = verified.final_heard_ns;
  if (auto stored = mode_->store_host_state(job_, std::move(state)); !stored) {
    return fail(
        Error(ErrorCode::kRefused, "The host state cannot be stored").caused_by(std::move(stored).error()));
  }
  if (stage_ == Stage::kReceiving) stage_ = Stage::kVerified;
  report_.emplace();
  report_->migration = info_.migration;
  report_->verified = true;
  report_->verified_ns = verified.verified_ns;
  report_->scan_ns = verified.scan_end_ns - verified.scan_begin_ns;
  report_->scan_bytes_per_second = verified.scan_bytes_per_second;
  emit(migration::FinalVerified{});
}

Task<> TargetSession::compare(wire::Bytes payload) {
  auto self = shared_from_this();
  auto same = co_await mode_->compare(std::move(payload));
  // After a refusal the stage stays the same, so that VERIFIED is never reported.
  if (!same) co_return fail(same.error());
  if (stage_ == Stage::kComparing) stage_ = Stage::kReceiving;
  if (!arrived_.empty() && !handling_) control::spawn(context_.executor, "target memory", handle_arrived());
}

void TargetSession::order_run(const migration::RunInstance& run) {
  if (report_ && report_->committed_ns == 0) report_->committed_ns = now_ns();
  RunOrder order;
  order.k = run.k;
  order.deadline = run.deadline.value_or(local::kNoDeadline);
  order_ = order;
  if (!std::exchange(ordering_, true)) return control::spawn(context_.executor, "target run", run_orders());
  if (!running_ || running_->k != order.k) return;
  // Restoring gigabytes takes longer than a lease. With the first deadline, the keeper would stop the
  // instance at its start.
  running_->deadline.renew(order.deadline);
  if (is_own() && !job_->ended() && job_->keeper())
    control::spawn(context_.executor, "target lease", renew_lease(job_->keeper(), order.deadline));
}

Task<> TargetSession::renew_lease(std::shared_ptr<KeeperLink> keeper, Nanos deadline) {
  auto self = shared_from_this();
  auto renewed = co_await keeper->set_deadline(deadline);
  if (!renewed)
    spdlog::warn("lease not renewed: id m{} reason {}", info_.migration, renewed.error().to_string());
}

Task<> TargetSession::run_orders() {
  auto self = shared_from_this();
  while (order_) {
    RunOrder order = *std::exchange(order_, std::nullopt);
    running_ = order;
    auto ran = co_await run_instance(order);
    running_.reset();
    if (ran) {
      lost_orders_ = 0;
      emit(migration::InstanceRuns(order.k));
      if (!order.has_run) job_->runs_as(order.k);
      ran_as_ = order.k;
      if (end_ != InstanceEnd::kNone) report_end();  // the instance ended before the answer to its resume
      continue;
    }
    if (has_finished()) {
      emit(migration::InstanceFinished(order.k));
      continue;
    }
    // A keeper that does not answer proves nothing: the instance may run. The order is repeated once the
    // keeper answers.
    if (job_ && job_->unknown()) {
      count_lost_order(order.k);
      if (!order_) order_ = order;
      continue;
    }
    lost_orders_ = 0;
    spdlog::error("instance could not run: job {} incarnation {} reason {}", wire::job_text(info_.job),
                  order.k, ran.error().to_string());
    const bool gone = !job_ || job_->ended() || !job_->keeper() || ran.error().code() == ErrorCode::kAborted;
    if (gone) emit(migration::InstanceDied(wire::Reason(ran.error())));
  }
  ordering_ = false;
}

Task<Result<void>> TargetSession::run_instance(RunOrder& order) {
  if (!job_) {
    CKPT_CO_TRY(brought, co_await mode_->bring());
    attach_to(brought);
    if (report_ && report_->host_restored_ns == 0) report_->host_restored_ns = now_ns();
  }
  // An instance that may have run before this agent was started must not count as lost.
  co_await job_->known();
  if (is_over()) {
    co_await free();  // the earlier call did not know an instance that was created since
    co_return Error(ErrorCode::kAborted, "The migration was aborted");
  }
  // The mover's session releases the memory, which is copied here again into the instance's own memory. The
  // keeper still holds it, and the GPU may have space for only one more region.
  if (!mode_->has_memory() && !context_.remap.imports()) co_await release_memory();
  if (job_->ended() || !job_->keeper()) {
    co_return Error(ErrorCode::kNotFound, "The instance at the target has exited");
  }
  order.has_run = job_->record().ran && job_->incarnation() >= order.k;
  if (!order.has_run && is_hopeless(order.k)) co_return co_await give_up_instance();
  auto* report =
      report_ ? &*report_ : nullptr;  // computed outside the co_await, because g++ 12 computes both branches
                                      // there
  CKPT_CO_TRYV(co_await mode_->run(job_, order, report));
  learn();
  // The memory is the instance's own from this point on. Nothing may hold regions that the instance frees.
  control::spawn(context_.executor, "target release", release_memory());
  co_return ok();
}

void TargetSession::count_lost_order(wire::Incarnation k) {
  if (std::exchange(lost_as_, k) != k) lost_orders_ = 0;
  if (lost_orders_++ == 0) first_lost_ = std::chrono::steady_clock::now();
}

bool TargetSession::is_hopeless(wire::Incarnation k) const {
  return lost_as_ == k && lost_orders_ >= kMaxLostOrders && is_own() && waits_for_resume(*job_) &&
         std::chrono::steady_clock::now() - first_lost_ >= context_.config.keeper_timeout;
}

Task<Result<void>> TargetSession::give_up_instance() {
  spdlog::error(
      "instance is being terminated, because its keeper was lost at each order to run: job {} id {} orders "
      "{}",
      wire::job_text(info_.job), wire::migration_text(info_.migration), lost_orders_);
  gave_up_ = true;
  const std::shared_ptr<Job> job = job_;
  co_await end_for_certain(job);
  co_return Error(ErrorCode::kAborted, "The instance's keeper was lost at each order to run");
}

Task<Result<void>> TargetSession::enter_gate(wire::Incarnation k, std::uint64_t epoch) {
  auto self = shared_from_this();
  const AsyncMutex::Held turn = co_await gate_.acquire();
  if (report_ && report_->committed_ns == 0) report_->committed_ns = now_ns();
  if (!job_) {
    CKPT_CO_TRY(brought, co_await mode_->bring());
    attach_to(brought);
  }
  co_await job_->known();
  if (has_finished()) {
    emit(migration::InstanceFinished(k));
    co_return Error(ErrorCode::kNotFound, "The program at the target has exited");
  }
  if (job_->ended() || !job_->keeper())
    co_return Error(ErrorCode::kAborted, "The instance at the target has exited");
  if (job_->record().ran && job_->incarnation() >= k) co_return ok();
  co_return co_await mode_->enter_gate(job_, k, epoch);
}

Task<Result<void>> TargetSession::open_gate(wire::Incarnation k, Nanos deadline) {
  auto self = shared_from_this();
  const AsyncMutex::Held turn = co_await gate_.acquire();
  const auto keeper = job_ ? job_->keeper() : nullptr;
  if (!keeper) co_return Error(ErrorCode::kAborted, "The instance at the target has exited");
  if (job_->record().ran && job_->incarnation() >= k) co_return co_await keeper->set_deadline(deadline);
  local::Resume resume;
  resume.incarnation = k;
  resume.deadline_ns = deadline;
  const Nanos sent_ns = now_ns();
  opening_ = true;
  auto running = co_await keeper->resume(resume, UniqueFd());
  opening_ = false;
  if (running) job_->runs_as(k);
  if (running || has_finished()) ran_as_ = k;
  if (end_ != InstanceEnd::kNone) report_end();  // the instance ended before the answer to its resume
  if (!running) co_return std::move(running).error();
  if (report_ && report_->resume_sent_ns == 0) {
    report_->resume_sent_ns = sent_ns;
    report_->resumed_ns = running->resumed_ns;
    report_->groups_made_ns = communicators_made_at_;
  }
  learn();
  control::spawn(context_.executor, "target release", release_memory());
  co_return ok();
}

// Updates the node's costs. A later agent's report lacks the times before that agent's start.
void TargetSession::learn() {
  if (stage_ != Stage::kVerified || report_->resumed_ns == 0) return;
  stage_ = Stage::kMeasured;
  const wire::TargetReport& r = *report_;
  wire::PauseNumbers took;
  Nanos before = r.verified_ns;
  const auto reach = [&took, &before](PauseTerm term, Nanos at) {
    if (at == 0) return;
    took[term] = std::max<Nanos>(0, at - before);
    before = std::max(before, at);
  };
  reach(PauseTerm::kCommunicators, r.groups_made_ns);
  reach(PauseTerm::kCommit, r.committed_ns);
  reach(PauseTerm::kHostRestore, r.host_restored_ns);
  reach(PauseTerm::kContextRestore, r.context_restored_ns);
  reach(PauseTerm::kFill, r.memory_filled_ns);
  reach(PauseTerm::kMap, r.resume_sent_ns);
  reach(PauseTerm::kResume, r.resumed_ns);
  const PauseWork work = mode_->pause_work(*job_);
  if (const PauseWork::Part& host = work[PauseTerm::kHostRestore]; host.on)
    report_->host_write_bytes_per_second =
        faster(context_.pauses->costs().memory().write, host.bytes, took[PauseTerm::kHostRestore]);
  context_.pauses->learn(work, took, true);
}

Task<> TargetSession::release_memory() {
  auto self = shared_from_this();
  auto memory = std::exchange(export_, nullptr);
  auto session = std::exchange(session_, nullptr);
  if (memory) co_await memory->stop();
  if (session) co_await session->end();
}

Task<> TargetSession::free() {
  auto self = shared_from_this();
  const bool prepares = stage_ == Stage::kPreparing || stage_ == Stage::kAbandoned;
  stage_ = prepares ? Stage::kAbandoned : Stage::kFreed;
  // Terminates an instance that is still starting first. The coroutine that waits for the instance then
  // cleans up.
  auto job = job_;
  co_await mode_->end(job);
  if (stage_ == Stage::kAbandoned) co_return;
  co_await release_memory();
  co_await mode_->free(job);
}

}  // namespace ckpt::agent
