// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshots/restore_session.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "agent/jobs/gang_rendezvous.h"
#include "agent/snapshots/restore_report.h"
#include "libckpt/base/fault.h"
#include "libckpt/protocol/wire/ids.h"
#include "libckpt/protocol/wire/job_messages.h"

namespace ckpt::agent::protect {
namespace {

constexpr std::size_t kMaxSkippedText = 2000;

}  // namespace

RestoreSession::RestoreSession(ProtectContext& context, wire::RestoreImage request,
                               CheckpointStorePlace place)
    : context_(context),
      request_(std::move(request)),
      place_(std::move(place)),
      arrived_(context.base.executor) {}

Task<Result<void>> RestoreSession::run() {
  auto self = shared_from_this();
  auto restored = co_await restore();
  co_await release_memory();
  if (restored) {
    spdlog::info("restored: job {} incarnation {} version {} state_bytes {}",
                 wire::job_text(request_.spec.job), request_.spec.incarnation, done_->version,
                 done_->state_bytes);
    co_return ok();
  }
  spdlog::warn("not restored: job {} incarnation {} reason {}", wire::job_text(request_.spec.job),
               request_.spec.incarnation, restored.error().to_string());
  co_await clean_up();
  co_return restored;
}

void RestoreSession::give_up() {
  given_up_ = true;
  if (!failure_) failure_ = check_is_wanted().error();
  arrived_.notify();
}

Result<void> RestoreSession::check_is_wanted() const {
  if (!given_up_) return ok();
  return Error(ErrorCode::kAborted, "The restore was canceled because the job must end");
}

Task<Result<StoredVersion>> RestoreSession::read(std::uint64_t version) {
  const auto look = [this, version] { return read_version(place_, request_.image_job, version); };
  co_return co_await offload(context_.pool, look);
}

Task<Result<void>> RestoreSession::restore() {
  CKPT_CO_TRY(stored, co_await read(request_.version));
  stored_ = std::move(stored);
  CKPT_CO_TRYV(co_await check(stored_));
  CKPT_CO_TRYV(add_rendezvous(request_.spec));
  mode_ = make_target_mode(context_.base, JobOperation::restore(request_.spec));
  CKPT_CO_TRY(process, context_.base.gpus.mover_of(gpu_of(request_.spec.ranks)));
  process->start();  // creates the mover's context while the instance starts
  CKPT_CO_TRYV(co_await start_instance());
  CKPT_CO_TRYV(check_is_wanted());
  CKPT_CO_TRYV(co_await process->ready(context_.base.config.mover_timeout));
  CKPT_CO_TRYV(co_await open_session(process));
  if (mode_->has_memory()) {
    CKPT_CO_TRYV(co_await export_memory());
  }
  CKPT_CO_TRYV(co_await fill());
  co_return co_await run_instance();
}

Task<Result<void>> RestoreSession::check(const StoredVersion& stored) {
  const wire::JobSpec& spec = stored.job.spec;
  if (spec.mode != request_.spec.mode)
    co_return Error(ErrorCode::kRefused, "The image is from a " + std::string(to_string(spec.mode)) +
                                             " job, but the job that must start is a " +
                                             std::string(to_string(request_.spec.mode)) + " one");
  if (spec.mode == MigrationMode::kCooperative) co_return ok();
  const std::uint32_t gpu = gpu_of(request_.spec.ranks);
  CKPT_CO_TRY(model, context_.base.gpus.model_of(gpu));
  if (model == stored.job.gpu_model) co_return ok();
  co_return Error(ErrorCode::kRefused, "The image's GPU context needs a " + stored.job.gpu_model +
                                           ", and GPU " + std::to_string(gpu) + " of node " +
                                           context_.base.config.node + " is a " + model);
}

Task<Result<void>> RestoreSession::start_instance() {
  CKPT_CO_TRY(job, co_await mode_->start());
  job_ = std::move(job);
  fault_point(FaultPoint::kRestoreStarted);
  co_return co_await mode_->ready(job_);
}

Task<Result<void>> RestoreSession::open_session(std::shared_ptr<MoverProcess> process) {
  CKPT_CO_TRY(request,
              session_order(mover::Purpose::kRestore, wire::Side::kTarget, request_.spec.incarnation));
  request.makes_memory = !mode_->has_memory();
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

Task<Result<void>> RestoreSession::export_memory() {
  MemoryExport::Settings settings;
  settings.timeout = context_.base.config.keeper_timeout;
  settings.failed = [weak = weak_from_this()](Error error) {
    auto self = weak.lock();
    if (!self) return;
    self->failure_ = std::move(error);
    self->arrived_.notify();
  };
  const auto keeper = job_->keeper();  // null if the instance ended during the mover's preparation
  if (!keeper) co_return Error(ErrorCode::kUnavailable, "The instance ended before its memory was exported");
  export_ = MemoryExport::create(keeper, session_, std::move(settings));
  CKPT_CO_TRYV(co_await export_->run(context_.base.executor));
  co_return ok();
}

void RestoreSession::on_mover(mover::Packet packet) {
  packets_.push_back(std::move(packet));
  arrived_.notify();
}

Task<Result<void>> RestoreSession::fill() {
  mover::StartRestore start;
  start.folder = place_.path;
  start.image_job = request_.image_job;
  start.version = request_.version;
  start.access = place_.access;
  const Nanos began = now_ns();
  CKPT_CO_TRYV(session_->send(std::move(start)));
  while (!done_) {
    if (failure_) co_return *failure_;
    if (packets_.empty()) {
      co_await arrived_.wait(std::chrono::steady_clock::time_point::max());
      continue;
    }
    mover::Packet packet = std::move(packets_.front());
    packets_.pop_front();
    CKPT_CO_TRYV(co_await handle(std::move(packet)));
  }
  fill_ns_ = now_ns() - began;
  if (done_->version != stored_.number) {
    CKPT_CO_TRY(older, co_await read(done_->version));
    if (older.job.set != stored_.job.set)
      co_return Error(ErrorCode::kCorrupt,
                      "Version " + std::to_string(stored_.number) +
                          " is damaged, and older versions do not match the versions of the other ranks");
    stored_ = std::move(older);
    CKPT_CO_TRYV(co_await check(stored_));
  }
  for (const std::string& skipped : done_->skipped)
    spdlog::warn("damaged image skipped: job {} {}", wire::job_text(request_.spec.job), skipped);
  if (request_.spec.mode != MigrationMode::kCooperative) {
    CKPT_CO_TRYV(co_await mode_->compare(stored_.job.payload));
  }
  co_return mode_->store_host_state(job_, std::move(host_state_));
}

Task<Result<void>> RestoreSession::handle(mover::Packet packet) {
  if (auto* made = std::get_if<mover::MadeRegions>(&packet.message)) {
    auto regions = std::move(made->regions);
    co_return co_await mode_->import_memory(job_, std::move(regions), std::move(packet.fds));
  }
  if (auto* gone = std::get_if<mover::DroppedRegions>(&packet.message)) {
    auto regions = std::move(gone->regions);
    released_ += regions.size();
    CKPT_CO_TRYV(co_await mode_->drop_memory(job_, std::move(regions)));
    mover::RegionsLetGo answer;
    answer.regions = released_;
    co_return session_->send(std::move(answer));
  }
  if (auto* done = std::get_if<mover::RestoreDone>(&packet.message)) {
    host_state_ =
        HostState(packet.fds.empty() ? UniqueFd() : std::move(packet.fds.front()), done->host_state_bytes);
    done_ = std::move(*done);
  }
  co_return ok();
}

Result<void> RestoreSession::write_report() const {
  wire::RestoreReport report;
  report.job = request_.spec.job;
  report.incarnation = request_.spec.incarnation;
  report.folder = request_.folder;
  report.image_job = request_.image_job;
  report.version = stored_.number;
  report.barrier_ms = stored_.barrier_ms;
  report.fill_ns = fill_ns_;
  for (const std::string& skipped : done_->skipped)
    report.skipped += (report.skipped.empty() ? "" : "; ") + skipped;
  report.skipped.resize(std::min(report.skipped.size(), kMaxSkippedText));
  return write_restore_report(job_->folder(), report);
}

Task<Result<void>> RestoreSession::run_instance() {
  fault_point(FaultPoint::kRestoreFilled);
  // The mover's session releases the memory, which is copied here again into the instance's own memory. The
  // keeper still holds it, and the GPU may have space for only one more region.
  if (!mode_->has_memory() && !context_.base.remap.imports()) co_await release_memory();
  CKPT_CO_TRYV(check_is_wanted());
  if (!job_) {
    CKPT_CO_TRY(brought, co_await mode_->bring());
    job_ = std::move(brought);
  }
  // The report is written before the instance runs, because the message that it runs names its image.
  CKPT_CO_TRYV(write_report());
  CKPT_CO_TRYV(check_is_wanted());
  RunOrder order;
  order.k = request_.spec.incarnation;
  CKPT_CO_TRYV(co_await mode_->run(job_, order, nullptr));
  job_->runs_as(order.k);
  co_return ok();
}

Task<> RestoreSession::release_memory() {
  auto self = shared_from_this();
  auto memory = std::exchange(export_, nullptr);
  auto session = std::exchange(session_, nullptr);
  if (memory) co_await memory->stop();
  if (session) co_await session->end();
}

Task<> RestoreSession::clean_up() {
  if (!mode_) co_return;
  co_await mode_->end(job_);
  co_await mode_->free(job_);
}

}  // namespace ckpt::agent::protect
