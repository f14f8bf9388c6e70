// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/settling.h"

#include <spdlog/spdlog.h>

#include "agent/migration/modes/adopted_mode.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {

// The time limit for settling a job. A slower job, such as one that CRIU still dumps, does not prevent its
// node from serving.
constexpr std::chrono::seconds kSettleWait{5};

Task<> Settling::after_restart() {
  began_ = true;
  const auto open = std::make_shared<Open>(context_.executor);
  for (const auto& job : context_.jobs.all()) {
    ++open->count;
    control::spawn(context_.executor, "settle", settle_counted(job, open));
  }
  const auto until = std::chrono::steady_clock::now() + kSettleWait;
  bool in_time = true;
  while (open->count > 0 && in_time) in_time = co_await open->done.wait(until);
  if (open->count > 0)
    spdlog::warn("jobs not settled yet: count {}; the node accepts requests meanwhile", open->count);
}

Task<> Settling::settle_counted(std::shared_ptr<Job> job, std::shared_ptr<Open> open) {
  co_await settle_known(std::move(job));
  if (--open->count == 0) open->done.notify();
}

Task<> Settling::settle_known(std::shared_ptr<Job> job) {
  if (job->unknown()) co_return;  // known_again() settles this job later
  co_await settle(job);
  co_await withdraw_leftovers(job);
}

// Settles a job that has become known. No job may continue before the journal was read. A job of an open
// migration continues only through that migration.
void Settling::known_again(const std::shared_ptr<Job>& job) {
  if (began_ && !protocols_.is_open(job->id()))
    control::spawn(context_.executor, "settle", settle_known(job));
}

// Withdraws arrived memory from a job that runs with all its memory. The memory is left over from an agent
// that exited between the job's resume and the withdrawal, or during its copy. The leftover memory would keep
// allocations that the job frees.
Task<> Settling::withdraw_leftovers(std::shared_ptr<Job> job) {
  if (job->ended() || !job->keeper()) co_return;
  const auto status = co_await job->keeper()->attach();
  if (!status || !job->keeper()) co_return;
  const local::Status& now = *status;
  if (now.phase != local::Phase::kRunning || now.memory != local::MemoryState::kMapped ||
      now.arrived_regions == 0)
    co_return;
  const auto withdrawn = co_await job->keeper()->withdraw(now.arrived_migration);
  spdlog::info("memory that a previous agent exported was withdrawn: job {} id {} regions {} done {}",
               wire::job_text(job->id()), wire::migration_text(now.arrived_migration), now.arrived_regions,
               withdrawn.has_value());
}

namespace {
bool stands_paused(const Job& job) {
  const local::Phase phase = job.phase();
  const bool dumped = phase == local::Phase::kDumped && job.record().spec.mode != MigrationMode::kCooperative;
  return !job.ended() && (dumped || phase == local::Phase::kPaused || phase == local::Phase::kPausing);
}
}  // namespace

// Terminates a standby that no record names. The machines decide about any other standby.
Task<> Settling::settle_standby(std::shared_ptr<Job> job) {
  const wire::MigrationId migration = job->record().migration;
  for (MoveProtocol* protocol : protocols_.all()) {
    if (!protocol->has_promised(migration)) continue;
    if (job->ended()) protocol->on_standby_ended(migration);
    co_return;
  }
  spdlog::info("standby without a record was ended: job {} id {}", wire::job_text(job->id()),
               wire::migration_text(migration));
  co_await context_.jobs.remove(job);
}

Task<> Settling::settle(std::shared_ptr<Job> job) {
  const JobRecord& record = job->record();
  if (record.role == wire::JobRole::kStandby && !record.ran) {
    co_await settle_standby(std::move(job));
    co_return;
  }
  const AsyncMutex::Held turn = co_await job->resume_turn().acquire();
  if (!stands_paused(*job) || !job->keeper() || !protocols_.may_run_freely(*job)) co_return;
  if (record.spec.mode == MigrationMode::kAdopted) {
    auto back = co_await put_adopted_back(context_, job, job->gpu());
    if (!back)
      spdlog::error("paused process not continued: job {} reason {}", wire::job_text(job->id()),
                    back.error().to_string());
  }
  if (record.spec.mode == MigrationMode::kTransparent) {
    // The agent may have exited while it saved the job. The context and the memory are then restored to their
    // former places.
    const auto mode = make_source_mode(context_, JobOperation::snapshot(record.spec, job->incarnation()));
    auto back = co_await mode->go_back(job);
    if (!back)
      spdlog::error("paused process not resumed on its GPU: job {} reason {}", wire::job_text(job->id()),
                    back.error().to_string());
    if (!job->keeper()) co_return;
  }
  local::Resume resume;
  resume.incarnation = job->incarnation();
  auto running = co_await job->keeper()->resume(resume, UniqueFd{});
  if (running) {
    spdlog::info("paused job resumed: job {} incarnation {}", wire::job_text(job->id()), job->incarnation());
    job->runs_as(job->incarnation());
  } else {
    spdlog::error("paused job not resumed: job {} reason {}", wire::job_text(job->id()),
                  running.error().to_string());
  }
}

}  // namespace ckpt::agent
