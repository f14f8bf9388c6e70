// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/modes/swap_mode.h"

#include <spdlog/spdlog.h>

#include "agent/migration/modes/thin_rank.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {
namespace {

// Checks that the rank is at its barrier, because a running rank must not lose its memory.
bool is_held(const Job& job) {
  return job.phase() == local::Phase::kPaused;
}

}  // namespace

PauseWork swap_work(std::uint64_t region_bytes, bool imports) {
  PauseWork work = common_work(PauseKind::kSwap);
  work.add(PauseTerm::kContextSave).add(PauseTerm::kContextRestore).save_beside_copy();
  if (!imports) work.add(PauseTerm::kFill, region_bytes);
  return work;
}

// ---- source

Task<Result<void>> SwapSource::check(std::shared_ptr<Job>) {
  CKPT_CO_TRY(facts, co_await context_.contexts.ready());
  if (!facts.missing_support().empty())
    co_return Error(ErrorCode::kRefused,
                    "This node's driver cannot move a context: " + facts.missing_support());
  co_return co_await context_.remap.prepare();
}

PauseWork SwapSource::pause_work(const Job&, const local::StateSummary& summary) const {
  return swap_work(summary.region_bytes, context_.remap.imports());
}

Task<Result<HostState>> SwapSource::save(std::shared_ptr<Job> job, PausedState, wire::SourceReport& report) {
  CKPT_CO_TRYV(co_await save_context(context_, job));
  report.context_saved_ns = now_ns();
  co_return HostState();
}

Task<Result<void>> SwapSource::go_back(std::shared_ptr<Job> job) {
  if (!is_held(*job)) co_return ok();
  CKPT_CO_TRY(index, operation_.source_gpu());
  CKPT_CO_TRY(gpu, context_.gpus.identity_of(index));
  CKPT_CO_TRYV(co_await place_context(context_, job, gpu, MemoryChoice(local::MemorySet::kExported, 0)));
  co_return co_await job->moved_to(index);
}

// Does nothing, because the process now belongs to the target. Its old memory is freed when the export is
// stopped.
Task<> SwapSource::leave(std::shared_ptr<Job>) {
  co_return;
}

// ---- target

std::shared_ptr<Job> SwapTarget::find() {
  auto job = context_.jobs.running_as(operation_.job(), operation_.base());
  return job ? job : context_.jobs.running_as(operation_.job(), operation_.next());
}

Task<Result<std::shared_ptr<Job>>> SwapTarget::start() {
  auto job = find();
  if (!job || !job->keeper())
    co_return Error(ErrorCode::kNotFound,
                    "Job " + wire::job_text(operation_.job()) + " does not run on this node");
  co_return job;
}

Task<Result<void>> SwapTarget::ready(std::shared_ptr<Job>) {
  co_return ok();
}

Task<Result<void>> SwapTarget::import_memory(std::shared_ptr<Job> job, std::vector<mover::RegionInfo> regions,
                                             std::vector<UniqueFd> descriptors) {
  const auto keeper = job->keeper();
  if (!keeper) co_return Error(ErrorCode::kUnavailable, "The job's process has exited");
  std::vector<local::RegionRecord> records;
  for (const mover::RegionInfo& region : regions) {
    local::RegionRecord& record = records.emplace_back();
    record.id = region.id;
    record.generation = region.generation;
    record.bytes = region.bytes;
    generations_[region.id] = region.generation;
  }
  co_return co_await keeper->deposit(operation_.number(), std::move(records), std::move(descriptors));
}

Task<Result<void>> SwapTarget::drop_memory(std::shared_ptr<Job> job, std::vector<std::uint64_t> regions) {
  const auto keeper = job->keeper();
  if (!keeper) co_return Error(ErrorCode::kUnavailable, "The job's process has exited");
  std::vector<local::RegionKey> keys;
  for (const std::uint64_t id : regions) {
    if (const auto known = generations_.extract(id); !known.empty()) keys.push_back({id, known.mapped()});
  }
  if (keys.empty()) co_return ok();
  co_return co_await keeper->withdraw_regions(operation_.number(), std::move(keys));
}

Result<void> SwapTarget::store_host_state(std::shared_ptr<Job>, HostState) {
  return ok();
}

Task<Result<void>> SwapTarget::run(std::shared_ptr<Job> job, RunOrder order, wire::TargetReport* report) {
  if (order.has_run || !is_held(*job)) {
    CKPT_CO_TRYV(co_await job->keeper()->set_deadline(order.deadline));
    co_await free(job);  // an earlier agent may have exited right after the resume
    co_return ok();
  }
  auto resumed = co_await resume(job, order, report);
  if (resumed) co_return ok();
  // The source still has all memory, so the job continues there.
  co_return Error(ErrorCode::kAborted, "The job cannot continue at the target GPU")
      .caused_by(std::move(resumed).error());
}

Task<Result<void>> SwapTarget::resume(std::shared_ptr<Job> job, RunOrder order, wire::TargetReport* report) {
  CKPT_CO_TRY(index, operation_.target_gpu());
  CKPT_CO_TRY(gpu, context_.gpus.identity_of(index));
  CKPT_CO_TRY(placed, co_await place_context(context_, job, gpu,
                                             MemoryChoice(local::MemorySet::kArrived, operation_.number())));
  const Nanos placed_ns = now_ns();
  CKPT_CO_TRYV(co_await job->moved_to(index));
  const auto keeper = job->keeper();
  if (!keeper) co_return Error(ErrorCode::kUnavailable, "The process ended before it was resumed");
  local::Resume resume;
  resume.incarnation = order.k;
  resume.deadline_ns = order.deadline;
  CKPT_CO_TRY(running, co_await keeper->resume(resume, UniqueFd{}));
  if (report != nullptr && report->resume_sent_ns == 0) {
    placed.add_to(*report);
    report->resume_sent_ns = placed_ns;
    report->resumed_ns = running.resumed_ns;
  }
  // The process has the memory. A second holder would keep memory that the process frees.
  if (auto withdrawn = co_await keeper->withdraw(operation_.number()); !withdrawn)
    spdlog::warn("memory not withdrawn: id {} reason {}", operation_.name(), withdrawn.error().to_string());
  co_return ok();
}

PauseWork SwapTarget::pause_work(const Job& job) const {
  PauseWork work = common_work(PauseKind::kSwap);
  work.add(PauseTerm::kContextRestore);
  if (!context_.remap.imports()) work.add(PauseTerm::kFill, job.summary().region_bytes);
  return work;
}

Task<> SwapTarget::end(std::shared_ptr<Job>) {
  co_return;
}

Task<> SwapTarget::free(std::shared_ptr<Job> job) {
  if (!job || !job->keeper()) co_return;
  auto withdrawn = co_await job->keeper()->withdraw(operation_.number());
  if (!withdrawn)
    spdlog::warn("memory not withdrawn: id {} reason {}", operation_.name(), withdrawn.error().to_string());
}

}  // namespace ckpt::agent
