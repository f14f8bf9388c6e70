// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/modes/cooperative_mode.h"

#include <sys/stat.h>

namespace ckpt::agent {
namespace {

PauseWork work_of(const JobOperation& operation) {
  PauseWork work = common_work(PauseKind::kCooperative);
  if (const auto expected = operation.communicators()) work.add(PauseTerm::kCommunicators, 0, 0, *expected);
  return work;
}

std::string host_state_path(const Job& job) {
  return job.folder() + "/host_state";
}

// Checks for an error with which the keeper or its rank has answered. In these cases the standby has not run,
// and the keeper terminates it.
bool is_misfit(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kTimedOut:
    case ErrorCode::kUnavailable:
    case ErrorCode::kAborted:
      return false;
    default:
      return true;
  }
}

}  // namespace

Task<Result<void>> CooperativeSource::check(std::shared_ptr<Job>) {
  co_return ok();
}

// Checks the target's abilities. An older agent would start the job's own program again and report success.
Result<void> CooperativeSource::check_target(const EndpointPayload& target) {
  if (operation_.new_argv().empty() || target.starts_programs) return ok();
  return Error(ErrorCode::kRefused,
               "The target's older agent cannot start another program (--exec): update that agent");
}

PauseWork CooperativeSource::pause_work(const Job&, const local::StateSummary&) const {
  return work_of(operation_);
}

Task<Result<HostState>> CooperativeSource::save(std::shared_ptr<Job>, PausedState paused,
                                                wire::SourceReport&) {
  const std::uint64_t bytes = paused.paused.host_state_bytes;
  co_return HostState(bytes > 0 ? std::move(paused.host_state) : UniqueFd(), bytes);
}

Task<Result<void>> CooperativeSource::go_back(std::shared_ptr<Job>) {
  co_return ok();
}

Task<> CooperativeSource::leave(std::shared_ptr<Job> job) {
  co_await job->leave();
}

std::shared_ptr<Job> CooperativeTarget::find() {
  return context_.jobs.started_by(operation_.number(), operation_.job(), operation_.next());
}

Task<Result<std::shared_ptr<Job>>> CooperativeTarget::start() {
  // An aborted migration may have left an instance of the same incarnation, which releases its memory first.
  if (auto old = context_.jobs.started_as(operation_.job(), operation_.next()))
    co_await context_.jobs.remove(old);
  co_return co_await context_.jobs.start(standby_record(operation_));
}

Task<Result<void>> CooperativeTarget::ready(std::shared_ptr<Job> job) {
  co_return co_await job->standby_ready(context_.config.standby_timeout);
}

Task<Result<void>> CooperativeTarget::import_memory(std::shared_ptr<Job>, std::vector<mover::RegionInfo>,
                                                    std::vector<UniqueFd>) {
  co_return Error(ErrorCode::kProtocol,
                  "The mover created memory for a standby, which already has its own memory");
}

Result<void> CooperativeTarget::store_host_state(std::shared_ptr<Job> job, HostState state) {
  host_state_ = std::move(state.file);
  return save_host_state(host_state_.get(), state.bytes, host_state_path(*job));
}

Task<Result<void>> CooperativeTarget::run(std::shared_ptr<Job> job, RunOrder order,
                                          wire::TargetReport* report) {
  const local::Phase phase = job->phase();
  const bool is_held = phase == local::Phase::kStandbyReady || phase == local::Phase::kPaused;
  if (is_held && !order.has_run) co_return co_await resume_standby(job, order, report);
  co_return co_await job->keeper()->set_deadline(order.deadline);
}

Task<Result<void>> CooperativeTarget::resume_standby(std::shared_ptr<Job> job, RunOrder order,
                                                     wire::TargetReport* report) {
  local::Resume resume;
  resume.incarnation = order.k;
  resume.deadline_ns = order.deadline;
  UniqueFd host_state;
  if (job->phase() == local::Phase::kStandbyReady) {
    if (!host_state_) {
      CKPT_CO_TRY(loaded, load_host_state(host_state_path(*job)));
      host_state_ = std::move(loaded);
    }
    struct stat facts {};
    if (::fstat(host_state_.get(), &facts) == 0)
      resume.host_state_bytes = static_cast<std::uint64_t>(facts.st_size);
    host_state = std::move(host_state_);
  }
  const Nanos sent_ns = now_ns();
  const auto keeper = job->keeper();  // the instance may have ended in the meantime
  if (!keeper) co_return Error(ErrorCode::kUnavailable, "The instance ended before it was resumed");
  auto resumed = co_await keeper->resume(resume, std::move(host_state));
  if (!resumed && is_misfit(resumed.error()))
    co_return Error(ErrorCode::kAborted, "The standby could not take over the job's state")
        .caused_by(std::move(resumed).error());
  CKPT_CO_TRY(running, std::move(resumed));
  if (report != nullptr && report->resume_sent_ns == 0) {
    report->resume_sent_ns = sent_ns;
    report->resumed_ns = running.resumed_ns;
  }
  co_return ok();
}

Task<Result<void>> CooperativeTarget::enter_gate(std::shared_ptr<Job> job, wire::Incarnation k,
                                                 std::uint64_t epoch) {
  local::Resume resume;
  resume.incarnation = k;
  resume.epoch = epoch;
  UniqueFd host_state;
  if (job->phase() == local::Phase::kStandbyReady) {
    CKPT_CO_TRY(loaded, load_host_state(host_state_path(*job)));
    host_state_.reset();
    struct stat facts {};
    if (::fstat(loaded.get(), &facts) == 0)
      resume.host_state_bytes = static_cast<std::uint64_t>(facts.st_size);
    host_state = std::move(loaded);
  }
  const auto keeper = job->keeper();
  if (!keeper) co_return Error(ErrorCode::kUnavailable, "The instance ended before it was resumed");
  auto entered = co_await keeper->enter_gate(resume, std::move(host_state));
  if (!entered && is_misfit(entered.error()))
    co_return Error(ErrorCode::kAborted, "The standby could not take over the rank's state")
        .caused_by(std::move(entered).error());
  co_return entered;
}

PauseWork CooperativeTarget::pause_work(const Job&) const {
  return work_of(operation_);
}

Task<> CooperativeTarget::end(std::shared_ptr<Job> job) {
  if (job) co_await job->destroy();
}

Task<> CooperativeTarget::free(std::shared_ptr<Job> job) {
  if (job && !job->record().ran) co_await context_.jobs.remove(job);
}

}  // namespace ckpt::agent
