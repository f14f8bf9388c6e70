// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/agent.h"

#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "agent/daemon/machine_timing.h"
#include "agent/host_process/criu.h"
#include "agent/host_process/files/kept_logs.h"
#include "agent/jobs/log_reader.h"
#include "agent/migration/modes/kept_criu_logs.h"
#include "agent/migration/modes/last_save.h"
#include "agent/migration/modes/process_image.h"
#include "libckpt/net/control/loop_watch.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {
namespace {

constexpr std::chrono::seconds kEndOfRestores{8};
constexpr Nanos kTidyLogs = 3600 * 1000 * kNanosPerMs;
constexpr std::int64_t kMinLeaseTermMs = 10;
constexpr std::int64_t kMaxLeaseTermMs = 24 * 3600 * 1000;

Result<void> make_private_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return Error::from_errno(error.value(), "Cannot create " + path);
  if (::chmod(path.c_str(), 0700) != 0) return Error::from_errno("Cannot set the mode of " + path);
  return ok();
}

std::string denied_file(const Config& config) {
  return config.home + "/denied-certificates";
}

wire::GpuInfo to_wire(const GpuFacts& gpu, const HealthMonitor& health) {
  wire::GpuInfo out;
  out.index = gpu.index;
  out.uuid = gpu.uuid;
  out.name = gpu.name;
  out.model = gpu.name;
  out.total_bytes = gpu.total_bytes;
  out.free_bytes = gpu.free_bytes;
  out.healthy = gpu.problem.empty() && !gpu.lost;
  out.health_reason = gpu.problem;
  out.bus_id = gpu.bus_id;
  out.recovery_action = gpu.recovery_action;
  out.numa_node = gpu.topology.numa_node;
  out.fabric = gpu.topology.fabric;
  out.mig = gpu.topology.mig;
  out.remap_pending = gpu.topology.remap_pending;
  out.remap_failed = gpu.topology.remap_failed;
  if (const KnownGpu* known = health.gpu(gpu.uuid)) out.errors = known->errors;
  for (const GpuPeerFacts& facts : gpu.topology.peers) {
    wire::GpuPeer& peer = out.peers.emplace_back();
    peer.index = facts.index;
    peer.nvlinks = facts.nvlinks;
    peer.common_ancestor = facts.common_ancestor;
  }
  return out;
}

}  // namespace

Agent::Agent(Config config)
    : config_(std::move(config)),
      signals_(io_),
      refresh_(io_.get_executor()),
      inventory_(io_, config_.nvml, config_.nvml_timeout, config_.visible_gpus) {}

Agent::~Agent() {
  disk_.join();
  records_.join();
  images_.join();
}

Result<std::unique_ptr<Agent>> Agent::create(Config config) {
  std::unique_ptr<Agent> agent(new Agent(std::move(config)));
  CKPT_TRYV(agent->open());
  return agent;
}

Result<void> Agent::open() {
  CKPT_TRYV(find_programs());
  CKPT_TRYV(make_private_folder(config_.home));
  CKPT_TRY(networks, resolve_networks(config_.networks));
  networks_ = std::move(networks);
  CKPT_TRYV(open_jobs());
  CKPT_TRYV(open_identity());
  coordinator_ = std::make_unique<CoordinatorLink>(io_.get_executor(), config_, *this, identity_, denied_);
  const std::string context_program = programs_ + "/gpumigrate-context";
  CKPT_TRY(health, HealthMonitor::create({config_, io_.get_executor(), disk_, *jobs_, *files_, *coordinator_,
                                          programs_ + "/gpumigrate-health", context_program}));
  health_ = std::move(health);
  ContextSettings contexts;
  contexts.program = context_program;
  contexts.log_path = config_.home + "/context.log";
  contexts_ = ContextHelper::create(io_.get_executor(), std::move(contexts));
  remap_.emplace(io_.get_executor(), config_, *contexts_, context_program);
  create_context();
  job_orders_.emplace(JobOrders::Parts{config_, *contexts_, *jobs_, inventory_, *gpus_});
  forecast_ = std::make_unique<PauseForecast>(*context_);
  CKPT_TRYV(open_moves());
  create_snapshot_service();
  memory_.emplace(*jobs_, inventory_,
                  [this](wire::JobId job) { return moves_->is_moving(job) || protection_->is_stored(job); });
  CKPT_TRYV(open_metrics());
  descriptions_.emplace(*coordinator_, *jobs_, moves_->protocols());
  move_checks_.emplace(*coordinator_, *context_);
  network_checks_.emplace(*coordinator_, *context_);
  if (identity_) {
    renewal_.emplace(*coordinator_, *identity_, images_, io_.get_executor());
    denials_.emplace(*coordinator_, denied_, denied_file(config_), images_, io_.get_executor(),
                     [this] { close_denied(); });
  }
  return ok();
}

Result<void> Agent::find_programs() {
  CKPT_TRY(programs, program_folder());
  programs_ = programs;
  mover_program_ = config_.mover_program.empty() ? programs + "/gpumigrate-mover" : config_.mover_program;
  if (config_.shim_library.empty())
    config_.shim_library =
        std::filesystem::path(programs + "/../lib/libckpt_shim.so").lexically_normal().string();
  return ok();
}

Result<void> Agent::open_jobs() {
  const std::string keeper =
      config_.keeper_program.empty() ? programs_ + "/gpumigrate-keeper" : config_.keeper_program;
  CKPT_TRYV(make_private_folder(config_.jobs_folder()));
  CKPT_TRY(files, FileWatch::create(io_.get_executor()));
  files_ = std::move(files);
  environment_.emplace(JobEnvironment{config_, io_.get_executor(), *files_, keeper, *this, records_});
  jobs_.emplace(*environment_);
  return ok();
}

Result<void> Agent::open_identity() {
  if (config_.tls.empty()) return ok();
  CKPT_TRY(identity, tls::Identity::load(config_.tls, [](const Error& error) {
             spdlog::error("certificate not renewed: reason {}", error.to_string());
           }));
  if (identity->subject() != tls::Peer::node(config_.node))
    return Error(ErrorCode::kInvalidArgument, config_.tls.certificate + " is the certificate of " +
                                                  to_text(identity->subject()) + ", not of node " +
                                                  config_.node);
  identity_ = std::move(identity);
  return DeniedCertificates::load(denied_file(config_), *denied_);
}

void Agent::close_denied() {
  moves_->peers().close_denied();
  if (metrics_server_) metrics_server_->close_denied(*denied_);
}

Result<void> Agent::open_moves() {
  CKPT_TRY(journal, migration::Journal::open(config_.journal_path()));
  if (journal.torn_bytes() > 0) {
    spdlog::warn("journal: an incomplete record at the end was removed, bytes {}", journal.torn_bytes());
  }
  CKPT_TRY(gang_journal, gang::GangJournal::open(config_.gang_journal_path()));
  const auto fatal = [](const Error& error) {
    // The process exits, because only a restart reads the journal again. Any other way to continue would rely
    // on guesses about the journal's content.
    spdlog::critical("agent ends: {}", error.to_string());
    spdlog::shutdown();
    ::_exit(70);
  };
  PeerLinks::Settings peers;
  peers.node = config_.node;
  peers.listen = config_.peer_listen;
  peers.port_file = config_.home + "/peer.port";
  peers.identity = identity_;
  peers.denied = denied_;
  gang_link_.emplace(*coordinator_);
  CKPT_TRY(moves,
           Moves::create(
               {*context_, *gang_link_, std::move(peers),
                Migrations::Machines{io_, disk_, std::move(journal), timing_of(config_), fatal},
                GangDriver::Machines{io_, disk_, std::move(gang_journal), gang_timing_of(config_), fatal}}));
  moves_ = std::move(moves);
  gang_orders_.emplace(*coordinator_, moves_->gangs(), io_.get_executor());
  return ok();
}

void Agent::create_context() {
  gpus_.emplace(io_.get_executor(), config_, inventory_, networks_, mover_program_);
  transfers_.emplace(*coordinator_);
  context_.emplace(MigrationContext{config_, io_.get_executor(), images_, *jobs_, *contexts_, *remap_,
                                    std::make_shared<PauseMemory>(disk_, config_.home), *gpus_, snapshots_,
                                    *transfers_});
}

void Agent::create_snapshot_service() {
  CheckpointStoreServerSettings checkpoint_store;
  checkpoint_store.program = programs_ + "/gpumigrate-checkpoint-store";
  checkpoint_store.node = config_.node;
  checkpoint_store.log_path = config_.home + "/vault.log";
  checkpoint_store.folder = config_.checkpoint_store_folder();
  checkpoint_store.memory = config_.checkpoint_store_memory_folder();
  checkpoint_store.memory_limit_bytes = config_.checkpoint_store_memory_limit_mib << 20;
  if (!checkpoint_store.memory.empty()) {
    if (auto claimed = protect::claim_memory_folder(checkpoint_store.memory); !claimed) {
      spdlog::error(
          "checkpoint_store_memory is not used, so images from other nodes are written to disk: reason {}",
          claimed.error().to_string());
      checkpoint_store.memory.clear();
    }
  }
  checkpoint_store.host = host_text(networks_.front().address);
  checkpoint_store.port = config_.checkpoint_store_port;
  protection_ = std::make_unique<protect::Protection>(protect::Protection::Parts{
      *context_, *coordinator_, snapshots_, *moves_,
      CheckpointStoreServer::create(io_.get_executor(), std::move(checkpoint_store))});
}

Result<void> Agent::open_metrics() {
  metrics_ = std::make_unique<Metrics>(
      config_.node,
      Metrics::Sources{[this] { return coordinator_->connected(); }, inventory_, *jobs_, gpus_->movers(),
                       *transfers_, [this](wire::MigrationId id) { return moves_->protocols().sends(id); }});
  if (config_.metrics_address.empty()) return ok();
  CKPT_TRY(server,
           MetricsServer::create(io_.get_executor(), config_, identity_, denied_, metrics_->registry()));
  metrics_server_ = std::move(server);
  spdlog::info("metrics are served at {}", metrics_server_->where());
  return ok();
}

Result<void> Agent::run() {
  signals_.add(SIGTERM);
  signals_.add(SIGINT);
  signals_.async_wait([this](boost::system::error_code error, int number) {
    if (error) return;
    spdlog::info("agent stops: signal {}; jobs keep running", number);
    stop();
  });
  control::spawn(io_.get_executor(), "agent start", start(), [this](Error error) {
    failure_ = std::move(error);
    stop();
  });
  auto watch = control::LoopWatch::create(io_, control::settings_of_daemon());
  if (!watch) spdlog::error("the event loop is not monitored: reason {}", watch.error().to_string());
  io_.run();
  if (failure_) return *failure_;
  return ok();
}

std::set<wire::JobId> Agent::live_jobs() const {
  std::set<wire::JobId> live;
  for (const auto& job : jobs_->all())
    if (!job->ended()) live.insert(job->id());
  return live;
}

Task<> Agent::start() {
  auto names = host::SharedFolderWatch::start();
  if (names)
    shared_names_.emplace(*std::move(names));
  else
    spdlog::info("processes that create files in /dev/shm are not recorded: reason {}",
                 names.error().to_string());
  auto found = co_await jobs_->rediscover();
  if (!found)
    spdlog::error("jobs of the previous agent process not found: reason {}", found.error().to_string());
  if (found) remove_unused_images(config_, live_jobs());
  co_await inventory_.refresh();  // queries the GPUs first, because a restore may have to place a job on its
                                  // GPU again
  auto restored = co_await moves_->restore();
  if (!restored) {
    failure_ = Error(ErrorCode::kCorrupt, "The journal " + config_.journal_path() + " is inconsistent")
                   .caused_by(std::move(restored).error());
    stop();
    co_return;
  }
  co_await moves_->settling().after_restart();
  co_await detect_criu();
  if (!inventory_.last().problem.empty()) spdlog::warn("GPUs: {}", inventory_.last().problem);
  for (const auto& job : jobs_->all()) {
    if (job->ended()) continue;
    if (auto mover = gpus_->mover_of(job->gpu())) (*mover)->start();
  }
  spdlog::info("agent started: node {} gpus {} driver \"{}\" peer_address {}", config_.node,
               inventory_.last().gpus.size(), inventory_.last().driver_version, moves_->peers().address());
  health_->on_inventory(inventory_.last());
  health_->start();
  coordinator_->start();
  co_await refresh_loop();
}

// Determines whether jobs that start from now on can move with their process.
Task<> Agent::detect_criu() {
  const host::CriuFacts facts = co_await host::Criu::probe(config_.criu, config_.home);
  moves_processes_ = facts.works;
  process_reason_ = facts.problem;
  if (!facts.works) {
    spdlog::info("processes cannot be moved between nodes: reason {}", facts.problem);
    co_return;
  }
  config_.init_program = programs_ + "/gpumigrate-init";
  spdlog::info("processes can be moved between nodes: criu {} version {}", facts.program, facts.version);
  if (config_.rehearsal) control::spawn(io_.get_executor(), "rehearsal", rehearse(facts.version));
}

// Rehearses moves in parallel with all other work, and jobs may move in the meantime. A failed rehearsal is
// not repeated before the version of one of its programs changes.
Task<> Agent::rehearse(std::string criu_version) {
  const std::string of = std::string(GPUMIGRATE_VERSION) + ", CRIU " + criu_version + ", driver " +
                         inventory_.last().driver_version;
  if (context_->pauses->costs().rehearsed() == of) co_return;
  RehearsalOrder order;
  order.program = programs_ + "/gpumigrate-agent";
  order.home = config_.home;
  order.criu = config_.criu;
  const auto facts = co_await ask_rehearsal(std::move(order));
  context_->pauses->record(facts, of);
  if (facts) {
    spdlog::info("process moves rehearsed: {}", to_json(*facts).dump());
  } else {
    spdlog::warn("process moves not rehearsed, so the first estimates are guesses: reason {}",
                 facts.error().to_string());
  }
}

Task<> Agent::refresh_loop() {
  while (!stopping_) {
    co_await refresh_.wait(std::chrono::steady_clock::now() + memory_->interval());
    if (stopping_) co_return;
    co_await memory_->sample();
    co_await forecast_->refresh(moves_processes_);
    health_->on_inventory(inventory_.last());
    moves_->release_closed();
    metrics_->release_closed();
    protection_->erase_jobs_that_left();
    coordinator_->send_inventory();
    co_await tidy_logs();
  }
}

Task<> Agent::tidy_logs() {
  if (now_ns() < logs_tidy_until_) co_return;
  logs_tidy_until_ = now_ns() + kTidyLogs;
  const std::string folder = kept_logs_folder(config_);
  const auto remove = [&folder] {
    host::remove_old_logs(folder);
    return true;
  };
  co_await offload(images_, remove);
}

void Agent::stop() {
  if (stopping_) return;
  stopping_ = true;
  refresh_.notify();
  gpus_->stop();
  health_->stop();
  io_.stop();
}

void Agent::job_changed(const std::shared_ptr<Job>& job) {
  protection_->erase_jobs_that_left();
  if (jobs_->superseded(*job)) return;
  wire::JobInstance instance = job->instance();
  memory_->add_known(*job, instance);
  coordinator_->send_change(instance);
  // The start or the exit of a job changes the free memory that placement uses, so the GPUs are queried at
  // once.
  auto& known = known_phases_[job->folder()];
  if (std::exchange(known, instance.phase) == instance.phase) return;
  if (job->ended()) known_phases_.erase(job->folder());
  refresh_.notify();
}

void Agent::known_again(const std::shared_ptr<Job>& job) {
  if (!protection_->is_stored(job->id())) moves_->settling().known_again(job);
}

Task<Result<void>> Agent::save_before_kill(std::shared_ptr<Job> job) {
  return agent::save_before_kill(*context_, std::move(job));
}

wire::NodeInventory Agent::inventory() const {
  wire::NodeInventory out;
  out.node = config_.node;
  out.peer_address = moves_->peers().address();
  out.moves_processes = moves_processes_;
  out.resets_connections = true;
  out.gives_namespaces = true;
  out.process_reason = process_reason_;
  for (const GpuFacts& gpu : inventory_.last().gpus) out.gpus.push_back(to_wire(gpu, *health_));
  out.driver_version = inventory_.last().driver_version;
  out.gpu_reason = inventory_.why_no_gpus();
  out.rack = config_.rack;
  out.labels = config_.labels;
  out.networks = networks_;
  if (identity_) out.certificate_ends_s = identity_->expires_unix_s();
  for (const auto& job : jobs_->all()) {
    if (jobs_->superseded(*job)) continue;
    wire::JobInstance& instance = out.jobs.emplace_back(job->instance());
    memory_->count(*job, instance);
  }
  return out;
}

Task<Result<void>> Agent::start_job(wire::JobSpec spec) {
  return job_orders_->start(std::move(spec));
}

Task<Result<wire::ProcessFacts>> Agent::inspect(wire::InspectProcess request) {
  return job_orders_->inspect(std::move(request));
}

Task<Result<void>> Agent::stop_job(wire::StopJob stop) {
  const auto grace = std::chrono::duration_cast<Milliseconds>(std::chrono::nanoseconds(stop.grace_ns));
  protection_->give_up_restores(stop.job, stop.incarnation);
  auto stopped = co_await jobs_->stop(stop.job, stop.incarnation, grace);
  CKPT_CO_TRYV(co_await protection_->wait_for_restores(stop.job, stop.incarnation, kEndOfRestores));
  co_return stopped;
}

Task<Result<void>> Agent::forget_job(wire::ForgetJob forget) {
  if (moves_->is_moving(forget.job)) {
    co_return Error(ErrorCode::kRefused, "A migration of job " + wire::job_text(forget.job) + " is open");
  }
  if (protection_->is_stored(forget.job)) {
    co_return Error(ErrorCode::kRefused,
                    "A snapshot of job " + wire::job_text(forget.job) + " is being taken");
  }
  co_await jobs_->forget(forget.job);
  moves_->forget(forget.job);
  co_return ok();
}

Task<Result<wire::LogData>> Agent::read_job_log(wire::ReadLog request) {
  auto job = jobs_->started_as(request.job, request.incarnation);
  if (!job) job = jobs_->running_as(request.job, request.incarnation);
  if (!job) {
    co_return Error(ErrorCode::kNotFound, "There is no log of job " + wire::job_text(request.job) +
                                              ", incarnation " + std::to_string(request.incarnation) +
                                              ", on this node");
  }
  co_return co_await read_log(*environment_, job, std::move(request));
}

Result<void> Agent::set_limits(const wire::SetLimits& limits) {
  return moves_->protocols().set_limits(limits);
}

void Agent::welcome(const wire::Welcome& welcome) {
  if (!welcome.peer_token.empty()) moves_->peers().on_token(welcome.peer_token);
  // The coordinator's lease term applies, independent of this node's own setting.
  const std::int64_t term_ms = std::min(welcome.lease_term_ns / kNanosPerMs, kMaxLeaseTermMs);
  if (term_ms >= kMinLeaseTermMs) moves_->set_lease_term(static_cast<std::uint32_t>(term_ms));
  moves_->restate();
}

void Agent::commit_message(wire::CommitMessage message) {
  moves_->on_message(std::move(message));
}

}  // namespace ckpt::agent
