// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/modes/adopted_mode.h"

#include <spdlog/spdlog.h>

#include "agent/host_process/criu_image/driver_listener.h"
#include "agent/host_process/criu_image/image_size.h"
#include "agent/host_process/criu_image/pid_namespace_image.h"
#include "agent/host_process/criu_image/stopped_processes.h"
#include "agent/host_process/file_list.h"
#include "agent/host_process/image_pack.h"
#include "agent/host_process/memory_folder.h"
#include "agent/host_process/processes/process_tree.h"
#include "agent/migration/modes/kept_criu_logs.h"
#include "agent/migration/modes/process_files.h"
#include "agent/migration/modes/process_image.h"
#include "agent/migration/modes/process_mode.h"
#include "agent/migration/modes/restored_process.h"
#include "agent/migration/modes/saved_context.h"
#include "agent/migration/modes/tree_work.h"
#include "libckpt/base/fault.h"
#include "libckpt/protocol/wire/ids.h"
#include "libckpt/protocol/wire/job_messages.h"

namespace ckpt::agent {
namespace {

// The descriptor number under which the keeper passes the namespace on (agent/keeper/init/restored.h).
constexpr int kNamespaceFd = 11;

Result<std::shared_ptr<KeeperLink>> keeper_of(const Job& job) {
  auto keeper = job.keeper();
  if (job.ended() || !keeper) return Error(ErrorCode::kUnavailable, "The job's process has exited");
  return keeper;
}

Task<Result<void>> save_adopted(MigrationContext& context, std::shared_ptr<Job> job,
                                wire::SourceReport& report) {
  const AsyncMutex::Held turn = co_await job->release_mutex().acquire();
  CKPT_CO_TRY(keeper, keeper_of(*job));
  SavedContext saved(context, job);
  CKPT_CO_TRYV(co_await saved.inspect(keeper));
  CKPT_CO_TRYV(co_await saved.lock(context.config.pause_timeout));
  report.paused_ns = now_ns();
  CKPT_CO_TRYV(co_await saved.save());
  fault_point(FaultPoint::kSourceContextSaved);
  report.context_saved_ns = now_ns();
  co_return ok();
}

Task<Result<AdoptedPlace>> place_adopted(MigrationContext& context, std::shared_ptr<Job> job, GpuUuid gpu) {
  const AsyncMutex::Held turn = co_await job->release_mutex().acquire();
  CKPT_CO_TRY(keeper, keeper_of(*job));
  SavedContext saved(context, job);
  CKPT_CO_TRYV(co_await saved.inspect(keeper));
  CKPT_CO_TRYV(co_await saved.restore(gpu));
  AdoptedPlace placed;
  placed.restored_ns = now_ns();
  fault_point(FaultPoint::kTargetContextPlaced);
  placed.runs = co_await saved.unlock();
  co_return placed;
}

std::vector<std::string> restore_words() {
  return {"--inherit-fd", "fd[" + std::to_string(kNamespaceFd) + "]:" + host::kPidNamespaceLabel};
}

}  // namespace

// ---- source

Task<Result<void>> AdoptedSource::check(std::shared_ptr<Job> job) {
  CKPT_CO_TRY(facts, co_await context_.contexts.ready());
  if (!facts.can_checkpoint || (stays_ && !facts.missing_support().empty()))
    co_return Error(ErrorCode::kRefused,
                    "This node's driver cannot move a context: " + facts.missing_support());
  CKPT_CO_TRY(keeper, keeper_of(*job));
  CKPT_CO_TRY(status, co_await keeper->attach());
  const auto root = static_cast<pid_t>(status.rank_pid);
  CKPT_CO_TRY(state, co_await context_.contexts.state(root));
  if (state != context::ProcessState::kRunning)
    co_return Error(ErrorCode::kRefused, "Another program holds the GPU context of process " +
                                             std::to_string(root) + ": the driver reports the context as " +
                                             context::name_of(state));
  if (stays_) co_return ok();
  co_return co_await check_process(job, status);
}

Task<Result<void>> AdoptedSource::check_process(std::shared_ptr<Job> job, local::Status status) {
  const auto root = static_cast<pid_t>(status.rank_pid);
  CKPT_CO_TRY(criu, co_await find_criu(context_));
  criu_ = std::move(criu);
  const wire::JobSpec& spec = job->record().spec;
  CKPT_CO_TRYV(co_await check_credentials(context_, root, spec.uid, spec.gid));
  CKPT_CO_TRY(processes, co_await processes_of(context_, root));
  CKPT_CO_TRYV(host::check_sessions(processes));
  rules_ = rules_of_adopted(context_, *job, status, *criu_);
  rules_.for_image = operation_.kind() == JobOperation::Kind::kSnapshot;
  rules_.ends_connections = operation_.resets_connections();
  CKPT_CO_TRY(files, co_await collect_files(context_, root, rules_));
  files_ = wire::encode(files);
  has_connections_ = !files.connected.empty();
  listed_ = std::move(files);
  size_ = co_await size_of_tree(context_, root);
  limit_ = host::time_limit(size_.private_bytes + size_.shared_bytes);
  co_return ok();
}

PauseWork AdoptedSource::pause_work(const Job& job, const local::StateSummary&) const {
  return adopted_work(size_, job.record().device_bytes, stays_);
}

PauseWork adopted_work(const host::TreeSize& size, std::uint64_t device, bool stays) {
  PauseWork work = common_work(stays ? PauseKind::kAdoptedSwap : PauseKind::kAdoptedProcess);
  work.add(PauseTerm::kContextSave, device).add(PauseTerm::kContextRestore, device).add(PauseTerm::kFinal);
  if (stays) return work;
  const std::uint64_t bytes = size.without_shared(device) + device;
  work.add(PauseTerm::kDump, bytes, dump_cost(size))
      .add(PauseTerm::kFinal, bytes, 0, static_cast<Nanos>(bytes));
  return work.add(PauseTerm::kVerify, bytes).add(PauseTerm::kHostRestore, bytes, restore_cost(size));
}

wire::MoveNeeds AdoptedSource::needs() const {
  wire::MoveNeeds needs;
  needs.files = files_;
  needs.most_mappings = size_.most_mappings;
  needs.has_connections = has_connections_;
  needs.ended_connections = listed_.ended_connections;
  needs.resets_connections = rules_.ends_connections;
  return needs;
}

Result<void> AdoptedSource::check_target(const EndpointPayload& target) {
  return stays_ ? ok() : check_needs(needs(), target);
}

Task<Result<HostState>> AdoptedSource::save(std::shared_ptr<Job> job, PausedState,
                                            wire::SourceReport& report) {
  const std::uint64_t device_bytes = job->record().device_bytes;
  CKPT_CO_TRYV(co_await save_adopted(context_, job, report));
  report.context_bytes = device_bytes;
  report.host_saved_ns = report.context_saved_ns;
  if (stays_) co_return HostState();
  CKPT_CO_TRY(state, co_await dump(job, device_bytes));
  report.host_saved_ns = now_ns();
  co_return state;
}

Task<Result<HostState>> AdoptedSource::dump(std::shared_ptr<Job> job, std::uint64_t device_bytes) {
  CKPT_CO_TRY(keeper, keeper_of(*job));
  if (!criu_) co_return Error(ErrorCode::kUnavailable, "No CRIU is available to dump the process");
  CKPT_CO_TRY(status, co_await keeper->attach());
  const auto root = static_cast<pid_t>(status.rank_pid);
  CKPT_CO_TRYV(co_await keeper->prepare_dump(limit_));
  CKPT_CO_TRY(estimate, co_await estimate_dump(context_, root));
  CKPT_CO_TRYV(host::check_memory_left(estimate.bytes));
  CKPT_CO_TRY(place, host::find_memory_place());
  CKPT_CO_TRY(folder, host::MemoryFolder::create(place, image_folder_name(context_, operation_, "source"),
                                                 estimate.bytes - estimate.largest_bytes));
  CKPT_CO_TRY(pages, host::place_pages(folder.path(), estimate.largest_position));
  host::DumpOptions options;
  options.images = options.work = folder.path();
  options.timeout = host::criu_timeout(estimate.bytes);
  CKPT_CO_TRY(words, host::namespace_dump_options(root));
  options.more = std::move(words);
  const NamedResources named = co_await find_named(context_, job);
  options.makes_links = named.memory.needs_links();
  CKPT_CO_TRY(links, co_await acquire_dump_links(context_, named.memory));
  CKPT_CO_TRYV(co_await prepare_connections(context_, root, has_connections_, rules_.ends_connections,
                                            repair_, options));
  auto tried = co_await criu_->dump(root, options);
  if (!tried)
    co_return co_await save_criu_log(context_, operation_, host::Criu::dump_log(options), tried.error());
  const host::DumpFacts dumped = *tried;
  fault_point(FaultPoint::kSourceDumped);
  if (options.ends_connections) {
    CKPT_CO_TRYV(co_await end_connections(context_, root, repair_, folder.path(), options.connections));
  }
  const auto share = [this, root] { return ports_.share(root); };
  CKPT_CO_TRYV(co_await offload(context_.images, share));
  CKPT_CO_TRYV(host::detach_from_namespace(folder.path(), root));
  CKPT_CO_TRY(gpu, context_.gpus.identity_of(job->gpu()));
  const JobRecord& record = job->record();
  ImageNotes notes;
  notes.gpu = record.context_gpu.empty() ? to_text(gpu.uuid) : record.context_gpu;
  notes.connections = options.connections;
  notes.device_bytes = device_bytes;
  CKPT_CO_TRYV(write_image_notes(folder.path(), notes));
  CKPT_CO_TRYV(co_await save_named(context_, job, root, folder.path()));
  CKPT_CO_TRYV(co_await save_handover(context_, root, folder.path(), listed_, rules_));
  links.release();
  const auto pack = [&job, &folder, &pages] {
    host::store_stopped(job->folder(), host::stopped_in(folder.path()));
    return host::pack_folder(folder.path(), std::move(pages));
  };
  CKPT_CO_TRY(packed, co_await offload(context_.images, pack));
  spdlog::info("adopted process dumped: id {} bytes {} device_bytes {} took_ms {}", operation_.name(),
               dumped.bytes, device_bytes, dumped.took_ns / 1'000'000);
  co_return HostState(std::move(packed.file), packed.bytes);
}

Task<Result<void>> AdoptedSource::go_back(std::shared_ptr<Job> job) {
  std::uint32_t index = job->gpu();
  if (stays_) {
    CKPT_CO_TRY(own, operation_.source_gpu());
    index = own;
  }
  ports_.take_back();
  CKPT_CO_TRYV(co_await put_adopted_back(context_, job, index, repair_));
  remove_images_of_source(context_, operation_.job());
  co_return ok();
}

Task<> AdoptedSource::leave(std::shared_ptr<Job> job) {
  if (stays_) co_return;  // the process now belongs to the target
  remove_image_folder(context_, operation_, "source");
  auto named = co_await find_all_named(context_, job);
  if (operation_.resets_connections()) co_await reset_connections(context_, job);
  co_await job->leave();
  co_await remove_named(context_, std::move(named));
}

Task<Result<void>> put_adopted_back(MigrationContext& context, std::shared_ptr<Job> job, std::uint32_t gpu,
                                    host::ConnectionRepair repair) {
  CKPT_CO_TRY(keeper, keeper_of(*job));
  CKPT_CO_TRY(status, co_await keeper->attach());
  if (status.phase == local::Phase::kDumped) {
    const auto root = static_cast<pid_t>(status.rank_pid);
    const auto wait = [root] { return host::wait_for_dump(root, host::kDumpCheck); };
    CKPT_CO_TRYV(co_await offload(context.images, wait));
    const auto take = [folder = job->folder()] { return host::pop_stopped(folder); };
    const std::set<pid_t> stopped = co_await offload(context.images, take);
    co_await remove_dump_links(context, job);
    CKPT_CO_TRYV(co_await end_repair(context, root, repair));
    CKPT_CO_TRYV(co_await resume_source(context, root, stopped));
    const Milliseconds limit = co_await time_limit_of(context, root);
    CKPT_CO_TRYV(co_await keeper->reattach(local::Reattach{}, limit));
  } else if (status.phase != local::Phase::kPaused) {
    co_return ok();
  }
  CKPT_CO_TRY(identity, context.gpus.identity_of(gpu));
  CKPT_CO_TRY(placed, co_await place_adopted(context, job, identity.uuid));
  if (!placed.runs) co_return std::move(placed.runs).error();
  co_return co_await job->moved_to(gpu);
}

// ---- target

std::shared_ptr<Job> AdoptedTarget::find() {
  if (!stays_) return context_.jobs.started_by(operation_.number(), operation_.job(), operation_.next());
  auto job = context_.jobs.running_as(operation_.job(), operation_.base());
  return job ? job : context_.jobs.running_as(operation_.job(), operation_.next());
}

Task<Result<std::shared_ptr<Job>>> AdoptedTarget::start() {
  if (!stays_) co_return std::shared_ptr<Job>();
  auto job = find();
  if (!job || !job->keeper())
    co_return Error(ErrorCode::kNotFound,
                    "Job " + wire::job_text(operation_.job()) + " does not run on this node");
  co_return job;
}

Task<Result<void>> AdoptedTarget::ready(std::shared_ptr<Job>) {
  CKPT_CO_TRY(facts, co_await context_.contexts.ready());
  if (!facts.can_checkpoint)
    co_return Error(ErrorCode::kRefused,
                    "This node's driver cannot restore a context: " + facts.missing_support());
  if (stays_) co_return ok();
  CKPT_CO_TRY(criu, co_await find_criu(context_));
  criu_ = std::move(criu);
  co_return ok();
}

Task<Result<void>> AdoptedTarget::compare(wire::Bytes payload) {
  if (stays_) co_return ok();
  CKPT_CO_TRY(checked, co_await compare_files(context_, operation_, std::move(payload)));
  checked_ = std::move(checked);
  co_return ok();
}

Task<Result<void>> AdoptedTarget::import_memory(std::shared_ptr<Job>, std::vector<mover::RegionInfo>,
                                                std::vector<UniqueFd>) {
  co_return Error(ErrorCode::kProtocol,
                  "The mover created memory for an adopted process, whose memory the driver restores");
}

Result<void> AdoptedTarget::store_host_state(std::shared_ptr<Job>, HostState state) {
  image_bytes_ = state.bytes;
  image_ = std::move(state);
  return ok();
}

Task<Result<std::shared_ptr<Job>>> AdoptedTarget::bring() {
  Result<std::shared_ptr<Job>> restored = find();
  if (!stays_) restored = co_await restore();
  if (restored && !*restored) restored = Error(ErrorCode::kNotFound, "The job's process has exited");
  if (restored) co_return restored;
  // The process has never run here, and the source is still stopped at its barrier.
  co_return Error(ErrorCode::kAborted, "The process cannot be restored at the target")
      .caused_by(std::move(restored).error());
}

Task<Result<std::shared_ptr<Job>>> AdoptedTarget::restore() {
  if (!image_.file || !criu_)
    co_return Error(ErrorCode::kNotFound, "The image of the process was lost when its agent exited");
  CKPT_CO_TRY(place, host::find_memory_place());
  CKPT_CO_TRY(folder,
              host::MemoryFolder::create(place, image_folder_name(context_, operation_, "target"), 0));
  JobRecord record = standby_record(operation_);  // created before the resources, because the record contains
                                                  // the instance's start time
  const int file = image_.file.get();
  const auto unpack = [this, file, bytes = image_.bytes, &folder]() -> Result<void> {
    CKPT_TRYV(host::unpack_folder(file, bytes, folder.path()));
    CKPT_TRYV(host::free_driver_names(folder.path()));
    CKPT_TRYV(made_.make(context_, operation_.job(), folder.path()));
    CKPT_TRYV(
        prepare_handover(folder.path(), checked_, context_.config.cache_folders, moment_of(operation_)));
    CKPT_TRY(settings, host::saved_settings(folder.path()));
    settings_ = std::move(settings);
    return ok();
  };
  CKPT_CO_TRYV(co_await offload(context_.images, unpack));
  CKPT_CO_TRY(notes, read_image_notes(folder.path()));
  host::RestoreOptions options;
  options.images = options.work = folder.path();
  options.more = restore_words();
  options.connections = notes.connections;
  record.context_gpu = notes.gpu;
  record.device_bytes = notes.device_bytes;
  RestoreWork work;
  work.image_bytes = work.restored_bytes = image_.bytes;
  work.paused_ns = image_.paused_ns;
  work.size = co_await offload(context_.images, [&folder] { return host::size_of_image(folder.path()); });
  const PauseLines lines = pause_lines(context_, operation_.pause_kind());
  CKPT_CO_TRY(time, restore_time(lines[static_cast<std::size_t>(PauseTerm::kHostRestore)], operation_, work));
  HostRestore order = restore_order(*criu_, options, time);
  stopped_ = host::stopped_in(folder.path());
  order.stopped.assign(stopped_.begin(), stopped_.end());
  CKPT_CO_TRY(job, co_await start_restored(context_, operation_, std::move(record), std::move(order)));
  auto accepted = Result<void>(Error(ErrorCode::kUnavailable, "The restored process has exited"));
  if (const auto keeper = job->keeper()) {
    auto status = co_await keeper->attach();
    if (status) {
      accepted = co_await check_credentials(context_, static_cast<pid_t>(status->rank_pid),
                                            operation_.spec().uid, operation_.spec().gid);
    } else {
      accepted = std::move(status).error();
    }
    if (accepted) {
      auto remarks = co_await apply_settings(context_, static_cast<pid_t>(job->rank_pid()), settings_);
      if (remarks)
        remarks_ = *std::move(remarks);
      else
        accepted = std::move(remarks).error();
    }
  }
  if (!accepted) {
    co_await context_.jobs.remove(job);
    co_return std::move(accepted).error();
  }
  fault_point(FaultPoint::kTargetRestored);
  co_return job;
}

// Runs the instance. The function returns kAborted only if the process was not continued. The source still
// has all state in that case, and may continue.
Task<Result<void>> AdoptedTarget::run(std::shared_ptr<Job> job, RunOrder order, wire::TargetReport* report) {
  const auto keeper = job->keeper();
  if (!keeper) co_return Error(ErrorCode::kUnavailable, "The instance at the target has exited");
  CKPT_CO_TRY(status, co_await keeper->attach());
  const bool is_held = status.phase == local::Phase::kDumped || status.phase == local::Phase::kPaused;
  if (order.has_run || !is_held) co_return co_await keeper->set_deadline(order.deadline);
  auto placed = co_await place(job, order, report);
  if (!placed)
    co_return Error(ErrorCode::kAborted, "The job cannot continue at the target")
        .caused_by(std::move(placed).error());
  const AdoptedPlace& at = *placed;
  if (!at.runs)
    co_return Error(ErrorCode::kUnavailable, "The agent does not know whether the job continues")
        .caused_by(at.runs.error());
  local::Resume resume;
  resume.incarnation = order.k;
  resume.deadline_ns = order.deadline;
  CKPT_CO_TRY(running, co_await keeper->resume(resume, UniqueFd{}));
  if (report != nullptr && report->resume_sent_ns == 0) {
    report->context_restored_ns = report->resume_sent_ns = at.restored_ns;
    report->resumed_ns = running.resumed_ns;
    report->remarks = remarks_;
  }
  size_ = co_await size_of_tree(context_, static_cast<pid_t>(job->rank_pid()));
  made_.retain();
  control::spawn(context_.executor, "image release", release_image(context_, std::move(image_)));
  co_return ok();
}

Task<Result<AdoptedPlace>> AdoptedTarget::place(std::shared_ptr<Job> job, RunOrder order,
                                                wire::TargetReport* report) {
  CKPT_CO_TRY(keeper, keeper_of(*job));
  CKPT_CO_TRYV(co_await keeper->set_deadline(order.deadline));
  CKPT_CO_TRY(status, co_await keeper->attach());
  if (status.phase == local::Phase::kDumped) {
    if (operation_.resets_connections())
      co_await report_reset_connections(context_, static_cast<pid_t>(status.rank_pid), remarks_);
    CKPT_CO_TRY(is_held, co_await call_back(context_, keeper, static_cast<pid_t>(status.rank_pid),
                                            job->record().device_bytes, stopped_));
    if (is_held) {
      CKPT_CO_TRYV(check_pause(operation_, image_.paused_ns));
    }
    remove_image_folder(context_, operation_, "target");
    if (report != nullptr && report->resume_sent_ns == 0) report->host_restored_ns = now_ns();
  }
  CKPT_CO_TRY(index, operation_.target_gpu());
  CKPT_CO_TRY(gpu, context_.gpus.identity_of(index));
  CKPT_CO_TRY(placed, co_await place_adopted(context_, job, gpu.uuid));
  if (placed.runs) {
    if (auto moved = co_await job->moved_to(index); !moved)
      spdlog::error("job record not written: job {} reason {}", wire::job_text(operation_.job()),
                    moved.error().to_string());
  }
  co_return placed;
}

PauseWork AdoptedTarget::pause_work(const Job& job) const {
  PauseWork work = common_work(stays_ ? PauseKind::kAdoptedSwap : PauseKind::kAdoptedProcess);
  work.add(PauseTerm::kContextRestore, job.record().device_bytes);
  if (!stays_) work.add(PauseTerm::kHostRestore, image_bytes_, restore_cost(size_));
  return work;
}

Task<> AdoptedTarget::end(std::shared_ptr<Job> job) {
  control::spawn(context_.executor, "image release", release_image(context_, std::exchange(image_, {})));
  if (stays_) co_return;
  NamedResources named;
  if (job && !job->record().ran) named = co_await find_named(context_, job);
  if (job) co_await job->destroy();
  co_await made_.remove(context_);
  co_await remove_named(context_, std::move(named));
  remove_image_folder(context_, operation_, "target");
}

Task<> AdoptedTarget::free(std::shared_ptr<Job> job) {
  if (stays_) co_return;
  remove_image_folder(context_, operation_, "target");
  if (job && !job->record().ran) co_await context_.jobs.remove(job);
}

}  // namespace ckpt::agent
