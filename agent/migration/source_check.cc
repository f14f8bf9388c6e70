// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/source_check.h"

#include "agent/host_process/processes/process_tree.h"
#include "agent/migration/modes/process_files.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {

Task<Result<local::StateSummary>> check_source(SourceMode& mode, std::shared_ptr<Job> job, wire::JobId id) {
  if (job && job->unknown())
    co_return Error(ErrorCode::kRefused, "The agent does not know whether job " + wire::job_text(id) +
                                             " runs on this node: " + job->instance().reason);
  if (!job || job->ended() || !job->keeper())
    co_return Error(ErrorCode::kNotFound, "Job " + wire::job_text(id) + " does not run on this node");
  // A stopped process would not answer its keeper.
  if (const pid_t process = job->gpu_process(); host::is_stopped(process))
    co_return Error(ErrorCode::kRefused, "Process " + std::to_string(process) +
                                             " of the job is stopped by a signal: continue it (kill -CONT " +
                                             std::to_string(process) + "), then move the job");
  auto description = co_await job->keeper()->describe();
  if (!description) co_return std::move(description).error();
  const local::StateSummary summary = description->summary;
  if (!summary.movable)
    co_return Error(ErrorCode::kRefused, "The job cannot be moved: " + summary.reason.str());
  CKPT_CO_TRYV(co_await mode.check(job));
  if (job->ended()) co_return Error(ErrorCode::kUnavailable, "The job's process has exited");
  co_return summary;
}

namespace {

// Returns the reason why the job's program cannot be queried. The coordinator knows about migrations, so it
// sends no query during a migration.
std::optional<Error> why_held(const Job& job) {
  const local::Phase phase = job.phase();
  const bool is_held = phase == local::Phase::kPaused || phase == local::Phase::kDumped;
  if (!is_held || job.record().spec.mode == MigrationMode::kCooperative) return std::nullopt;
  return Error(ErrorCode::kUnavailable,
               "A snapshot of the job is in progress, so its program cannot be checked: try again after the "
               "snapshot. A move would cancel the snapshot first");
}

}  // namespace

Task<Result<wire::MoveNeeds>> check_move(MigrationContext& context, wire::CheckMove request) {
  const auto job = context.jobs.running_as(request.job, request.incarnation);
  if (!job)
    co_return Error(ErrorCode::kNotFound,
                    "Job " + wire::job_text(request.job) + " does not run on this node");
  if (const auto held = why_held(*job)) co_return *held;
  wire::JobSpec spec = job->record().spec;
  spec.connections = request.connections;
  const auto mode =
      make_source_mode(context, JobOperation::checked(spec, request.incarnation, request.leaves_node));
  const auto checked = co_await check_source(*mode, job, request.job);
  co_await mode->release();  // releases the memory that a move would have used at its beginning
  // `jobs` shows the obstacles that this check has found.
  if (request.leaves_node) job->set_obstacles(co_await count_obstacles(context, job));
  if (!checked)
    co_return why_held(*job).value_or(checked.error());  // a snapshot may have begun in the
                                                         // meantime
  co_return mode->needs();
}

}  // namespace ckpt::agent
