// SPDX-License-Identifier: Apache-2.0
#include <spdlog/spdlog.h>

#include <filesystem>

#include "agent/host_process/criu_image/driver_listener.h"
#include "agent/host_process/criu_image/image_size.h"
#include "agent/host_process/criu_image/lazy_pages_choice.h"
#include "agent/host_process/criu_image/mount_list.h"
#include "agent/host_process/criu_image/stopped_processes.h"
#include "agent/host_process/file_list.h"
#include "agent/host_process/image_pack.h"
#include "agent/host_process/memory_folder.h"
#include "agent/host_process/processes/process_tree.h"
#include "agent/migration/modes/process_files.h"
#include "agent/migration/modes/process_image.h"
#include "agent/migration/modes/process_mode.h"
#include "agent/migration/modes/restored_process.h"
#include "agent/migration/modes/thin_rank.h"
#include "agent/migration/modes/tree_work.h"
#include "libckpt/base/fault.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {
namespace {

constexpr std::chrono::hours kLongestArrival{1};  // limit for the memory that arrives after the process has
                                                  // started

Task<> report_arrival(MigrationContext& context, std::shared_ptr<Job> job, wire::TargetReport report) {
  const Nanos began = now_ns();
  const auto keeper = job->keeper();
  if (!keeper) co_return;
  const auto arrived = co_await keeper->await_memory(kLongestArrival);
  if (!arrived) {
    spdlog::error("host memory has not arrived after the move: job {} after_ms {} reason {}",
                  wire::job_text(job->id()), (now_ns() - began) / kNanosPerMs, arrived.error().to_string());
    co_return;
  }
  report.memory_follows_ns = now_ns() - began;
  context.reports.send(report);
}

}  // namespace

std::shared_ptr<Job> ProcessTarget::find() {
  return context_.jobs.started_by(operation_.number(), operation_.job(), operation_.next());
}

Task<Result<std::shared_ptr<Job>>> ProcessTarget::start() {
  co_return std::shared_ptr<Job>();
}

Task<Result<void>> ProcessTarget::ready(std::shared_ptr<Job>) {
  CKPT_CO_TRY(facts, co_await context_.contexts.ready());
  if (!facts.can_checkpoint)
    co_return Error(ErrorCode::kRefused,
                    "This node's driver cannot restore a context: " + facts.missing_support());
  const auto find_jobs = [folder = context_.config.jobs_folder()]() -> Result<std::string> {
    std::error_code unknown;
    const std::filesystem::path found = std::filesystem::weakly_canonical(folder, unknown);
    if (unknown) return Error::from_errno(unknown.value(), "Cannot resolve the agent's folder " + folder);
    return found.string();
  };
  CKPT_CO_TRY(jobs, co_await offload(context_.images, find_jobs));
  if (own_namespaces(operation_.spec()).contains(jobs))
    co_return Error(ErrorCode::kRefused, "The agent's folder " + jobs +
                                             " is in a folder that the job replaces with its own, so the job "
                                             "could not write its log: move the agent's home elsewhere");
  CKPT_CO_TRYV(co_await context_.remap.prepare());
  CKPT_CO_TRY(criu, co_await find_criu(context_));
  restores_lazily_ = co_await criu.restores_lazily(context_.config.home);
  criu_ = std::move(criu);
  co_return ok();
}

Task<Result<void>> ProcessTarget::import_memory(std::shared_ptr<Job>, std::vector<mover::RegionInfo> regions,
                                                std::vector<UniqueFd> descriptors) {
  if (regions.size() != descriptors.size())
    co_return Error(ErrorCode::kProtocol, "The mover sent a wrong number of descriptors");
  for (std::size_t i = 0; i < regions.size(); ++i) {
    local::RegionRecord record;
    record.id = regions[i].id;
    record.generation = regions[i].generation;
    record.bytes = regions[i].bytes;
    memory_[record.id] = {record, std::move(descriptors[i])};
  }
  co_return ok();
}

Task<Result<void>> ProcessTarget::drop_memory(std::shared_ptr<Job>, std::vector<std::uint64_t> regions) {
  for (const std::uint64_t id : regions) memory_.erase(id);
  co_return ok();
}

Task<Result<void>> ProcessTarget::compare(wire::Bytes payload) {
  CKPT_CO_TRY(checked, co_await compare_files(context_, operation_, std::move(payload)));
  checked_ = std::move(checked);
  co_return ok();
}

Result<void> ProcessTarget::store_host_state(std::shared_ptr<Job>, HostState state) {
  image_bytes_ = state.bytes;
  image_ = std::move(state);
  return ok();
}

Task<Result<std::shared_ptr<Job>>> ProcessTarget::bring() {
  auto restored = co_await restore();
  if (restored) co_return restored;
  if (auto in_time = check_pause(operation_, image_.paused_ns); !in_time)
    co_return std::move(in_time).error().caused_by(std::move(restored).error());
  // The process has never run here, and the source is still stopped at its barrier.
  co_return Error(ErrorCode::kAborted, "The process cannot be restored at the target")
      .caused_by(std::move(restored).error());
}

Task<Result<std::shared_ptr<Job>>> ProcessTarget::restore() {
  if (!image_.file || !criu_)
    co_return Error(ErrorCode::kNotFound, "The image of the process was lost when its agent exited");
  CKPT_CO_TRY(place, host::find_memory_place());
  CKPT_CO_TRY(folder,
              host::MemoryFolder::create(place, image_folder_name(context_, operation_, "target"), 0));
  JobRecord record = standby_record(operation_);  // created before the resources, because the record contains
                                                  // the instance's start time
  const int file = image_.file.get();
  const auto unpack = [this, file, bytes = image_.bytes, &folder,
                       max_eager_bytes = restores_lazily_ ? host::kMaxEagerBytes
                                                          : host::kAllEager]() -> Result<host::PageCounts> {
    CKPT_TRYV(host::unpack_folder(file, bytes, folder.path()));
    CKPT_TRYV(host::free_driver_names(folder.path()));
    CKPT_TRYV(made_.make(context_, operation_.job(), folder.path()));
    CKPT_TRYV(
        prepare_handover(folder.path(), checked_, context_.config.cache_folders, moment_of(operation_)));
    CKPT_TRY(settings, host::saved_settings(folder.path()));
    settings_ = std::move(settings);
    return host::choose_lazy_pages(folder.path(), max_eager_bytes);
  };
  const Nanos began = now_ns();
  CKPT_CO_TRY(pages, co_await offload(context_.images, unpack));
  RestoreWork work;
  work.image_bytes = image_.bytes;
  work.restored_bytes = host::restored_bytes(image_.bytes, pages.lazy);
  work.paused_ns = image_.paused_ns;
  work.size = co_await offload(context_.images, [&folder] { return host::size_of_image(folder.path()); });
  const Nanos unpacked = now_ns();
  CKPT_CO_TRY(notes, read_image_notes(folder.path()));
  if (notes.log.empty())
    co_return Error(ErrorCode::kCorrupt, "The image of the process does not name the log of its program");
  lazy_bytes_ = pages.lazy;
  host::RestoreOptions options;
  options.images = options.work = folder.path();
  options.connections = notes.connections;
  options.lazy = pages.lazy > 0;
  if (operation_.spec().has_own_namespaces()) {
    options.own_namespaces = true;
    const std::string log = instance_folder(context_.config.jobs_folder(), record.spec.job,
                                            record.spec.incarnation, record.migration) +
                            "/out.log";
    const auto prepare = [&folder, &notes, &log, own = own_namespaces(operation_.spec())]() -> Result<void> {
      CKPT_TRYV(host::use_mounts_of_node(folder.path(), own.folders()));
      return host::redirect_file(folder.path(), notes.log, log);
    };
    CKPT_CO_TRYV(co_await offload(context_.images, prepare));
  } else {
    options.old_log = notes.log;
  }
  record.context_gpu = notes.gpu;
  const PauseLines lines = pause_lines(context_, operation_.pause_kind());
  CKPT_CO_TRY(time, restore_time(lines[static_cast<std::size_t>(PauseTerm::kHostRestore)], operation_, work));
  HostRestore order = restore_order(*criu_, options, time);
  stopped_ = host::stopped_in(folder.path());
  order.stopped.assign(stopped_.begin(), stopped_.end());
  CKPT_CO_TRY(job, co_await start_restored(context_, operation_, std::move(record), std::move(order)));
  const Nanos restored = now_ns();
  auto accepted = co_await accept(job);
  if (!accepted) {
    co_await context_.jobs.remove(job);
    co_return std::move(accepted).error();
  }
  const auto ms = [](Nanos span) { return static_cast<double>(span) / kNanosPerMs; };
  spdlog::info(
      "process restored: id {} unpack_ms {:.1f} keeper_and_criu_ms {:.1f} accept_ms {:.1f} lazy_bytes {}",
      operation_.name(), ms(unpacked - began), ms(restored - unpacked), ms(now_ns() - restored), pages.lazy);
  fault_point(FaultPoint::kTargetRestored);
  co_return job;
}

// Accepts the restored process. Its memory is with its keeper, and it has no more rights than the job.
Task<Result<void>> ProcessTarget::accept(std::shared_ptr<Job> job) {
  CKPT_CO_TRYV(co_await deposit(job));
  const auto keeper = job->keeper();
  if (!keeper)
    co_return Error(ErrorCode::kUnavailable, "The restored process has exited: " + job->end_reason());
  CKPT_CO_TRY(status, co_await keeper->attach());
  const auto root = static_cast<pid_t>(status.rank_pid);
  CKPT_CO_TRYV(co_await check_credentials(context_, root, operation_.spec().uid, operation_.spec().gid));
  CKPT_CO_TRY(remarks, co_await apply_settings(context_, root, settings_));
  remarks_ = std::move(remarks);
  co_return ok();
}

// Deposits the memory with the keeper. From then on the memory outlives this agent.
Task<Result<void>> ProcessTarget::deposit(std::shared_ptr<Job> job) {
  while (!memory_.empty()) {
    std::vector<local::RegionRecord> records;
    std::vector<UniqueFd> descriptors;
    while (!memory_.empty() && records.size() < local::kMaxRecords) {
      auto& [record, descriptor] = memory_.begin()->second;
      records.push_back(record);
      descriptors.push_back(std::move(descriptor));
      memory_.erase(memory_.begin());
    }
    const auto keeper = job->keeper();
    if (!keeper)
      co_return Error(ErrorCode::kUnavailable, "The restored process has exited: " + job->end_reason());
    CKPT_CO_TRYV(co_await keeper->deposit(operation_.number(), std::move(records), std::move(descriptors)));
  }
  co_return ok();
}

Task<Result<void>> ProcessTarget::run(std::shared_ptr<Job> job, RunOrder order, wire::TargetReport* report) {
  const auto keeper = job->keeper();
  if (!keeper) co_return Error(ErrorCode::kUnavailable, "The instance at the target has exited");
  CKPT_CO_TRY(status, co_await keeper->attach());
  const bool is_held = status.phase == local::Phase::kDumped || status.phase == local::Phase::kPaused;
  if (order.has_run || !is_held) co_return co_await keep_running(keeper, order);
  auto resumed = co_await resume(job, order, report);
  if (resumed) {
    size_ = co_await size_of_tree(context_, static_cast<pid_t>(status.rank_pid));
    made_.retain();
    if (report != nullptr && lazy_bytes_ > 0) {
      report->memory_follows_bytes = lazy_bytes_;
      control::spawn(context_.executor, "host memory that follows", report_arrival(context_, job, *report));
    }
    control::spawn(context_.executor, "image release", release_image(context_, std::move(image_)));
    co_return ok();
  }
  co_return Error(ErrorCode::kAborted, "The job cannot continue at the target")
      .caused_by(std::move(resumed).error());
}

// Keeps a running instance running. An earlier agent may have exited right after the resume.
Task<Result<void>> ProcessTarget::keep_running(std::shared_ptr<KeeperLink> keeper, RunOrder order) {
  CKPT_CO_TRYV(co_await keeper->set_deadline(order.deadline));
  co_return co_await keeper->withdraw(operation_.number());
}

Task<Result<void>> ProcessTarget::resume(std::shared_ptr<Job> job, RunOrder order,
                                         wire::TargetReport* report) {
  auto keeper = job->keeper();
  if (!keeper)
    co_return Error(ErrorCode::kUnavailable, "The restored process has exited: " + job->end_reason());
  CKPT_CO_TRYV(co_await keeper->set_deadline(order.deadline));
  CKPT_CO_TRY(status, co_await keeper->attach());
  if (status.phase == local::Phase::kDumped) {
    if (operation_.resets_connections())
      co_await report_reset_connections(context_, static_cast<pid_t>(status.rank_pid), remarks_);
    CKPT_CO_TRY(held, co_await call_back(context_, keeper, static_cast<pid_t>(status.rank_pid), 0, stopped_));
    is_held_ = held;
  }
  remove_image_folder(context_, operation_, "target");
  if (report != nullptr && report->resume_sent_ns == 0) report->host_restored_ns = now_ns();
  CKPT_CO_TRY(gpu, context_.gpus.identity_of(job->gpu()));
  CKPT_CO_TRY(placed, co_await place_context(context_, job, gpu,
                                             MemoryChoice(local::MemorySet::kArrived, operation_.number())));
  // This is the last check. From its next instruction on, the process is the job.
  if (is_held_) {
    CKPT_CO_TRYV(check_pause(operation_, image_.paused_ns));
  }
  const Nanos placed_ns = now_ns();
  local::Resume resume;
  resume.incarnation = order.k;
  resume.deadline_ns = order.deadline;
  keeper = job->keeper();
  if (!keeper) co_return Error(ErrorCode::kUnavailable, "The process ended before it was resumed");
  CKPT_CO_TRY(running, co_await keeper->resume(resume, UniqueFd{}));
  if (report != nullptr && report->resume_sent_ns == 0) {
    placed.add_to(*report);
    report->resume_sent_ns = placed_ns;
    report->resumed_ns = running.resumed_ns;
    report->remarks = remarks_;
  }
  // The process has the memory. A second holder would keep memory that the process frees.
  if (auto withdrawn = co_await keeper->withdraw(operation_.number()); !withdrawn)
    spdlog::warn("memory not withdrawn: id {} reason {}", operation_.name(), withdrawn.error().to_string());
  co_return ok();
}

PauseWork ProcessTarget::pause_work(const Job& job) const {
  PauseWork work = common_work(PauseKind::kProcess);
  work.add(PauseTerm::kContextRestore)
      .add(PauseTerm::kHostRestore, host::restored_bytes(image_bytes_, lazy_bytes_), restore_cost(size_));
  if (!context_.remap.imports()) work.add(PauseTerm::kFill, job.summary().region_bytes);
  return work;
}

Task<> ProcessTarget::end(std::shared_ptr<Job> job) {
  memory_.clear();
  control::spawn(context_.executor, "image release", release_image(context_, std::exchange(image_, {})));
  NamedResources named;
  if (job && !job->record().ran) named = co_await find_named(context_, job);
  if (job) co_await job->destroy();
  co_await made_.remove(context_);
  co_await remove_named(context_, std::move(named));
  remove_image_folder(context_, operation_, "target");
}

Task<> ProcessTarget::free(std::shared_ptr<Job> job) {
  remove_image_folder(context_, operation_, "target");
  if (!job) co_return;
  if (!job->record().ran) co_return co_await context_.jobs.remove(job);
  // Withdraws the keeper's second hold of the memory after the job has the memory.
  if (job->keeper()) (void)co_await job->keeper()->withdraw(operation_.number());
}

}  // namespace ckpt::agent
