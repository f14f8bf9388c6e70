// SPDX-License-Identifier: Apache-2.0
#include "agent/jobs/job.h"

#include <fmt/chrono.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <utility>

#include "agent/host_process/processes/process_tree.h"
#include "agent/jobs/keeper_files.h"
#include "agent/jobs/keeper_last_save.h"
#include "agent/jobs/keeper_process.h"
#include "agent/jobs/log_end.h"
#include "libckpt/base/program_error.h"
#include "libckpt/protocol/wire/ids.h"
#include "libckpt/protocol/wire/job_messages.h"

namespace ckpt::agent {
namespace {

constexpr Milliseconds kKeeperStart{10000};
constexpr Milliseconds kForLastSave{10000};  // time after the grace that the agent has for its last save;
                                             // then the keeper kills the rank

std::int32_t exit_code_of(std::int32_t wait_status) {
  if (wait_status == kUnknownStatus) return -1;
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

wire::JobPhase to_wire(local::Phase phase) {
  switch (phase) {
    case local::Phase::kStarting:
    case local::Phase::kConnected:
      return wire::JobPhase::kStarting;
    case local::Phase::kStandbyReady:
      return wire::JobPhase::kStandby;
    case local::Phase::kRunning:
    case local::Phase::kPausing:
      return wire::JobPhase::kRunning;
    case local::Phase::kResuming:
    case local::Phase::kPaused:
    case local::Phase::kDumped:
      return wire::JobPhase::kPaused;
    case local::Phase::kLeaving:
      return wire::JobPhase::kMoved;
    case local::Phase::kExited:
      return wire::JobPhase::kExited;
  }
  return wire::JobPhase::kStarting;
}

// Returns the step that a program must still take before it can be moved. An empty string means that no step
// is missing.
std::string what_it_lacks(const JobRecord& record, local::Phase phase) {
  if (to_wire(phase) != wire::JobPhase::kStarting) return {};
  const char* lacks = "it has no CUDA context yet";
  if (record.spec.mode == MigrationMode::kCooperative)
    lacks = phase == local::Phase::kConnected ? "it has not called ckpt_ready yet"
                                              : "it has not called ckpt_init yet";
  return fmt::format("{} (since {:%F %T} UTC)", lacks,
                     fmt::gmtime(static_cast<std::time_t>(record.started_unix_ms / 1000)));
}

bool tells_phase(const local::Body& body) {
  return std::holds_alternative<local::Ready>(body) || std::holds_alternative<local::StandbyReady>(body) ||
         std::holds_alternative<local::Status>(body) || std::holds_alternative<local::RankExited>(body);
}

// Checks whether the folder is that of a job's first instance, and its agent exited before it had launched
// the keeper. A later instance does not count, because other nodes may know more than this folder records.
bool was_never_started(const std::string& folder, const JobRecord& record) {
  const bool first = record.role == wire::JobRole::kFresh && record.migration == 0 &&
                     record.spec.incarnation == wire::Incarnation{1} && !record.ended;
  std::error_code error;
  return first && !std::filesystem::exists(folder + "/keeper.pid", error) && !error &&
         !read_keeper_status(folder) && !keeper_may_live(folder);
}

}  // namespace

Job::Job(const JobEnvironment& environment, std::string folder, JobRecord record)
    : environment_(environment),
      folder_(std::move(folder)),
      record_(std::move(record)),
      writer_(folder_),
      release_mutex_(environment.executor),
      refresh_turn_(environment.executor),
      resume_turn_(environment.executor) {}

Task<Result<std::shared_ptr<Job>>> Job::start(const JobEnvironment& environment, JobRecord record,
                                              std::optional<HostRestore> restore) {
  const std::string folder = instance_folder(environment.config.jobs_folder(), record.spec.job,
                                             record.spec.incarnation, record.migration);
  std::shared_ptr<Job> job(new Job(environment, folder, std::move(record)));
  const auto prepare = [&job, &restore] { return job->prepare_folder(restore ? &*restore : nullptr); };
  CKPT_CO_TRYV(co_await offload(environment.records, prepare));
  // The value is computed outside the co_await, because g++ 12 computes both branches there.
  const Milliseconds restored_within = restore ? restore->timeout : Milliseconds{0};
  auto started = job->launch_keeper();
  if (started) started = co_await job->attach_when_ready(restored_within);
  if (!started) {
    co_await job->destroy();
    job->announced_ = job->unknown_;
    // The table must keep an instance that may still run.
    if (job->unknown_) co_return job;
    if (program_status_of(started.error()) != 0) co_return std::move(started).error();
    co_return Error(ErrorCode::kRefused, "Cannot start the job").caused_by(std::move(started).error());
  }
  job->announced_ = true;
  job->changed();
  co_return job;
}

Task<Result<std::shared_ptr<Job>>> Job::rediscover(const JobEnvironment& environment, std::string folder) {
  auto record = read_job_record(folder);
  if (!record) co_return std::move(record).error();
  if (was_never_started(folder, *record)) {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    co_return Error(ErrorCode::kAborted,
                    "The agent exited before it had started the job: start the job again");
  }
  std::shared_ptr<Job> job(new Job(environment, folder, *std::move(record)));
  job->announced_ = true;
  if (job->record_.ended) {
    job->phase_ = local::Phase::kExited;
    co_return job;
  }
  job->unknown_ = true;
  job->phase_ = job->record_.role == wire::JobRole::kStandby && !job->record_.ran
                    ? local::Phase::kStandbyReady
                    : local::Phase::kRunning;
  auto attached = co_await job->ask_once(environment.config.keeper_timeout);
  if (!attached && !job->accept_proven_end(attached.error())) job->become_unknown(attached.error());
  co_return job;
}

Result<void> Job::prepare_folder(const HostRestore* restore) const {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) return Error::from_errno(error.value(), "Cannot create " + folder_);
  ::chmod(folder_.c_str(), 0700);
  CKPT_TRYV(write_job_record(folder_, record_));
  return write_keeper_config(folder_, record_, environment_.config, restore);
}

Result<void> Job::launch_keeper() {
  ProcessSpec spec;
  spec.argv = {environment_.keeper_program, "--dir", folder_};
  spec.output_path = folder_ + "/keeper.log";
  spec.own_session = true;
  auto ended = [weak = weak_from_this()](int status) {
    auto self = weak.lock();
    if (!self) return;
    self->keeper_status_ = status;
    for (AsyncEvent* waiter : self->waiters_) waiter->notify();
  };
  CKPT_TRY(process, ChildProcess::start(environment_.executor, spec, std::move(ended)));
  process_ = std::move(process);
  return ok();
}

// Waits until the keeper is ready, and attaches. The started program exits when its child, the keeper,
// listens and has started the rank, or reports the reason for a failure.
Task<Result<void>> Job::attach_when_ready(Milliseconds restore) {
  AsyncEvent signal(environment_.executor);
  add_waiter(&signal);
  const auto until = std::chrono::steady_clock::now() + kKeeperStart + restore;
  bool in_time = true;
  while (in_time && !keeper_status_) in_time = co_await signal.wait(until);
  remove_waiter(&signal);
  if (!keeper_status_) co_return keeper_error("The keeper did not start in time");
  if (*keeper_status_ != 0) {
    if (const auto status = read_keeper_status(folder_); status && status->program_status != 0)
      co_return program_error(status->program_status, status->program_error);
    co_return keeper_error("The keeper terminated with " + describe_wait_status(*keeper_status_));
  }
  auto attached = connect();
  if (attached) attached = co_await attach();
  // The program may exit before the agent has attached, and the keeper then exits, too. The start counts as
  // successful if the keeper's file records the exit.
  if (attached || accept_written_end()) co_return ok();
  co_return attached;
}

Error Job::keeper_error(const std::string& what) const {
  const std::string log = folder_ + "/keeper.log";
  return Error(ErrorCode::kUnavailable,
               what + "; its last output: " + quoted_log_end(log) + " (" + log + ")");
}

Result<void> Job::connect() {
  KeeperLink::Handlers handlers;
  handlers.event = [weak = weak_from_this()](const local::Message& message) {
    if (auto self = weak.lock()) self->on_event(message);
  };
  handlers.closed = [weak = weak_from_this()](Error error) {
    if (auto self = weak.lock()) self->on_keeper_gone(error);
  };
  CKPT_TRY(link, KeeperLink::connect(environment_.executor, folder_ + "/keeper.sock",
                                     environment_.config.keeper_timeout, std::move(handlers)));
  keeper_ = std::move(link);
  return ok();
}

Task<Result<void>> Job::attach(std::optional<Milliseconds> timeout) {
  const std::uint64_t heard = phases_received_;
  const auto keeper = keeper_;
  auto status = co_await keeper->attach(timeout);
  if (!status) co_return std::move(status).error();
  unknown_ = false;
  // The answer is outdated if an event has reported a phase in the meantime. Such an event arrived directly
  // after the answer, and was handled before this coroutine continued.
  if (phases_received_ == heard)
    apply_status(*status);
  else
    rank_pid_ = status->rank_pid;
  if (phase_ == local::Phase::kRunning || phase_ == local::Phase::kPausing ||
      phase_ == local::Phase::kPaused) {
    control::spawn(environment_.executor, "job summary", refresh_summary());
  }
  co_return ok();
}

void Job::apply_status(const local::Status& status) {
  rank_pid_ = status.rank_pid;
  phase_ = status.phase;
  if (status.resumed_ns != 0) ran_as(status.incarnation);
  if (status.phase == local::Phase::kExited)
    return on_exited(status.wait_status, status.ended_by_keeper != 0);
  changed();
}

void Job::on_event(const local::Message& message) {
  auto self = shared_from_this();
  if (tells_phase(message.body)) ++phases_received_;
  if (std::holds_alternative<local::Ready>(message.body)) {
    phase_ = local::Phase::kRunning;
    control::spawn(environment_.executor, "job summary", refresh_summary());
  } else if (std::holds_alternative<local::StandbyReady>(message.body)) {
    phase_ = local::Phase::kStandbyReady;
  } else if (const auto* status = std::get_if<local::Status>(&message.body)) {
    apply_status(*status);
    // A transparent rank runs from its first GPU call on, and never sends Ready.
    if (phase_ == local::Phase::kRunning)
      control::spawn(environment_.executor, "job summary", refresh_summary());
  }
  if (const auto* exited = std::get_if<local::RankExited>(&message.body))
    return on_exited(exited->wait_status, exited->ended_by_keeper != 0);
  tell_listeners(message.body);
  changed();
}

void Job::tell_listeners(const local::Body& event) {
  for (const auto& [id, listener] : std::map(listeners_)) listener(event);
}

void Job::on_exited(std::int32_t wait_status, bool ended_by_keeper) {
  if (record_.ended) return;
  unknown_ = false;
  phase_ = local::Phase::kExited;
  record_.ended = true;
  record_.moved = leaving_;
  record_.exit_code = exit_code_of(wait_status);
  ended_on_request_ = ended_by_keeper;
  if (last_save_.empty() && ended_by_keeper && was_restored()) {
    const std::string said = read_keeper_last_save(folder_);
    if (!said.empty()) {
      last_save_ = "; " + said;
      spdlog::info("killed by its keeper: job {}; {}", wire::job_text(id()), said);
    }
  }
  const std::string loss = read_keeper_loss(folder_);
  if (!loss.empty()) spdlog::error("state lost: job {}; {}", wire::job_text(id()), loss);
  end_reason_ =
      "the process ended" +
      (wait_status == kUnknownStatus
           ? std::string(
                 "; its exit status is known only to its parent (it was adopted and had not been moved)")
           : " with " + describe_wait_status(wait_status)) +
      (ended_by_keeper ? ", as requested" : "") + (loss.empty() ? "" : ": " + loss) + last_save_;
  spdlog::info("job instance ended: job {} incarnation {} exit_code {} moved {}", wire::job_text(id()),
               record_.incarnation, record_.exit_code, record_.moved);
  // The event is created here, because the keeper's event may be lost. The exit is then known from the answer
  // to a query, or from the keeper's file.
  local::RankExited exited;
  exited.wait_status = wait_status;
  exited.ended_by_keeper = ended_by_keeper ? 1 : 0;
  tell_listeners(local::Body(exited));
  save_soon();
  changed();
  control::spawn(environment_.executor, "keeper shutdown", shut_down_keeper());
}

void Job::device_bytes_are(std::uint64_t bytes) {
  if (bytes == 0 || bytes == record_.device_bytes) return;
  record_.device_bytes = bytes;
  save_soon();
  changed();
}

Task<> Job::shut_down_keeper() {
  auto self = shared_from_this();
  if (!keeper_) co_return;
  auto keeper = std::exchange(keeper_, nullptr);
  auto done = co_await keeper->shut_down();
  if (!done)
    spdlog::debug("keeper did not shut down: job {} reason {}", wire::job_text(id()),
                  done.error().to_string());
  keeper->close();
}

// Runs one query at a time. A call during a query makes the query run once more. Otherwise the job's state
// would stay as it was at the start of the query.
Task<> Job::refresh_summary() {
  auto self = shared_from_this();
  if (refreshing_) {
    refresh_again_ = true;
    const AsyncMutex::Held over = co_await refresh_turn_.acquire();
    co_return;
  }
  refreshing_ = true;
  const AsyncMutex::Held turn = co_await refresh_turn_.acquire();
  do {
    refresh_again_ = false;
    if (!keeper_ || ended()) break;
    const auto asked = co_await ask_rank();
    silent_ = !asked.has_value();
    if (!asked) {
      spdlog::debug("job not described: job {} reason {}", wire::job_text(id()), asked.error().to_string());
      break;
    }
    changed();
  } while (refresh_again_);
  refreshing_ = false;
}

Task<Result<void>> Job::ask_rank() {
  const auto keeper = keeper_;
  CKPT_CO_TRY(description, co_await keeper->describe());
  summary_ = description.summary;
  // The answer's phase is ignored, because an event may have reported a later phase in the meantime.
  CKPT_CO_TRY(status, co_await keeper->attach());
  session_pid_ = status.session_pid;
  co_return ok();
}

void Job::runs_as(wire::Incarnation incarnation) {
  if (!record_.ended) phase_ = local::Phase::kRunning;  // the instance may have ended in the meantime
  if (ran_as(incarnation)) save_soon();
  changed();
  control::spawn(environment_.executor, "job summary", refresh_summary());
}

// Records that the instance ran as `incarnation`. A restarted agent may have a record without this fact. That
// agent obtains it from the keeper, or from the files that the keeper left.
bool Job::ran_as(wire::Incarnation incarnation) {
  if (record_.ran && record_.incarnation >= incarnation) return false;
  record_.incarnation = std::max(record_.incarnation, incarnation);
  record_.ran = true;
  return true;
}

Task<Result<void>> Job::moved_to(std::uint32_t gpu_index) {
  if (gpu() == gpu_index) co_return ok();
  record_.spec.ranks.front().gpu_index = gpu_index;
  CKPT_CO_TRYV(co_await save());
  changed();
  co_return ok();
}

Task<Result<void>> Job::set_context_location(std::string on, std::string goes_to) {
  record_.context_gpu = std::move(on);
  record_.context_goes_to = std::move(goes_to);
  co_return co_await save();
}

Task<Result<void>> Job::save() {
  auto self = shared_from_this();
  const JobRecord record = record_;
  const std::uint64_t number = ++saves_;
  const auto write = [this, &record, number] { return writer_.write(record, number); };
  co_return co_await offload(environment_.records, write);
}

Task<> Job::try_save() {
  auto self = shared_from_this();
  const auto saved = co_await save();
  if (!saved)
    spdlog::error("job record not written: job {} reason {}", wire::job_text(id()),
                  saved.error().to_string());
}

Task<> Job::remove_folder() {
  auto self = shared_from_this();
  const auto remove = [this] { return writer_.remove_folder(); };
  if (auto removed = co_await offload(environment_.records, remove); !removed)
    spdlog::warn("folder not removed: job {} reason {}", wire::job_text(id()), removed.error().to_string());
}

void Job::save_soon() {
  control::spawn(environment_.executor, "job record", try_save());
}

void Job::set_phase(local::Phase phase) {
  if (ended()) return;
  phase_ = phase;
  changed();
}

void Job::changed() {
  for (AsyncEvent* waiter : waiters_) waiter->notify();
  if (announced_) environment_.owner.job_changed(shared_from_this());
}

Task<Result<void>> Job::stop(Milliseconds grace) {
  auto self = shared_from_this();
  if (ended()) co_return ok();
  if (unknown_) {
    if (!stopping_unknown_) control::spawn(environment_.executor, "stop unknown", stop_unknown(grace));
    co_return Error(
        ErrorCode::kUnavailable,
        "The keeper of job " + wire::job_text(id()) + " does not answer (" + unknown_reason_ +
            "): the job is stopped if the keeper answers within the grace period, else the keeper is killed");
  }
  if (!keeper_) co_return ok();
  if (!was_restored()) co_return co_await keeper_->stop(grace);
  control::spawn(environment_.executor, "stop of a restored job", stop_restored(grace));
  co_return ok();
}

Task<> Job::stop_restored(Milliseconds grace) {
  auto self = shared_from_this();
  auto status = co_await keeper_->attach();
  if (ended() || !keeper_) co_return;
  const pid_t rank = status ? static_cast<pid_t>(status->session_pid) : 0;
  if (grace > Milliseconds(0) && rank > 0 && host::withstands(rank, SIGTERM)) {
    (void)co_await keeper_->stop(grace + kForLastSave);
    if (co_await wait_for_end(grace)) co_return;
  }
  co_await release_gpu();
  if (!keeper_ || ended()) co_return;
  if (auto killed = co_await keeper_->kill(); !killed)
    spdlog::warn("restored job not killed: job {} incarnation {} reason {}", wire::job_text(id()),
                 record_.incarnation, killed.error().to_string());
}

Task<> Job::release_gpu() {
  auto self = shared_from_this();
  if (!was_restored() || ended() || unknown_ || !keeper_) co_return;
  if (std::exchange(letting_go_, true)) {  // another caller is saving the context, and kills the rank
                                           // afterwards
    co_await wait_for_end(environment_.config.keeper_timeout);
    co_return;
  }
  auto saved = co_await environment_.owner.save_before_kill(self);
  letting_go_ = false;
  if (ended()) co_return;
  last_save_ =
      saved ? "; its context was saved before the kill"
            : "; its context was not saved before the kill, so check its GPU: " + saved.error().to_string();
  if (saved)
    spdlog::info("context saved before a kill: job {}", wire::job_text(id()));
  else
    spdlog::warn("context not saved before a kill: job {} reason {}", wire::job_text(id()),
                 saved.error().to_string());
}

Task<> Job::leave() {
  auto self = shared_from_this();
  if (ended()) co_return;
  leaving_ = true;
  co_await known();
  if (keeper_ && !ended()) {
    auto told = co_await keeper_->moved();
    if (!told && !ended()) {
      spdlog::warn("rank not notified that it has moved: job {} reason {}", wire::job_text(id()),
                   told.error().to_string());
      co_await release_gpu();
      if (keeper_) (void)co_await keeper_->kill();
    }
  }
  co_await wait_for_end(environment_.config.keeper_timeout);
}

Task<> Job::destroy() {
  auto self = shared_from_this();
  co_await release_gpu();
  if (!ended() && !unknown_ && keeper_) {
    (void)co_await keeper_->kill();
    co_await wait_for_end(environment_.config.keeper_timeout);
  }
  if (!ended() && process_) process_->signal(SIGKILL);
  if (!ended()) co_await kill_until_proven();
  if (!ended() && !unknown_) {
    record_.ended = true;
    ended_on_request_ = true;
    phase_ = local::Phase::kExited;
    local::RankExited exited;
    exited.wait_status = SIGKILL;
    exited.ended_by_keeper = 1;
    tell_listeners(local::Body(exited));
    co_await try_save();
    changed();
  }
}

wire::JobInstance Job::instance() const {
  wire::JobInstance out;
  out.job = id();
  out.name = record_.spec.name;
  out.incarnation = started_as();
  out.runs_as = incarnation();
  out.role = record_.role;
  out.phase = record_.moved ? wire::JobPhase::kMoved : to_wire(phase_);
  // The rank is restored but not yet resumed, so it is not the job's running instance.
  const bool stands_by = record_.role == wire::JobRole::kStandby && !record_.ran;
  if (stands_by && out.phase == wire::JobPhase::kPaused) out.phase = wire::JobPhase::kStandby;
  out.exit_code = record_.ended ? record_.exit_code : -1;
  out.ended_on_request = record_.ended && ended_on_request_;
  out.movable = summary_.movable != 0 && !unknown_;
  out.reason = record_.ended ? end_reason_ : summary_.reason.str();
  if (!record_.ended && out.reason.empty()) {
    out.reason = what_it_lacks(record_, phase_);
    if (!out.reason.empty() && !without_shim_.empty()) out.reason += ": " + without_shim_;
  }
  out.unknown = unknown_;
  if (unknown_)
    out.reason = "its keeper does not answer (" + unknown_reason_ +
                 "): the agent retries until the keeper answers or is proven to have exited";
  out.started_unix_ms = record_.started_unix_ms;
  out.log_bytes = log_bytes();
  if (!record_.ended) {
    std::tie(out.pause_within_node_ns, out.pause_between_nodes_ns) = expected_pauses_;
    if (obstacles_) out.obstacles = static_cast<std::int32_t>(*obstacles_);
  }
  for (const wire::RankSpec& rank : record_.spec.ranks) {
    wire::RankState state;
    state.rank = rank.rank;
    state.pid = static_cast<std::int32_t>(rank_pid_);
    state.gpu_index = rank.gpu_index;
    state.state_bytes = record_.device_bytes != 0 ? record_.device_bytes : summary_.state_bytes;
    out.ranks.push_back(state);
  }
  return out;
}

std::uint64_t Job::log_bytes() const {
  struct stat facts {};
  return ::stat(log_path().c_str(), &facts) == 0 ? static_cast<std::uint64_t>(facts.st_size) : 0;
}

std::string Job::end_reason() const {
  return end_reason_.empty() ? "it has ended" : end_reason_;
}

std::uint64_t Job::listen(Listener listener) {
  listeners_.emplace(next_listener_, std::move(listener));
  return next_listener_++;
}

void Job::unlisten(std::uint64_t id) {
  listeners_.erase(id);
}

}  // namespace ckpt::agent
