// SPDX-License-Identifier: Apache-2.0
#include "agent/health/monitor.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>

#include "agent/health/findings.h"
#include "agent/host_process/process_tree.h"
#include "libckpt/base/clock.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent {
namespace {

constexpr char kDefaultKernelLog[] = "/dev/kmsg";
constexpr std::size_t kMostFindings = 1000;
constexpr std::size_t kMostSeen = 256;  // of one GPU in one window
constexpr std::size_t kMostLineBytes = 400;
constexpr std::chrono::seconds kSaveAgain{5};

std::string record_path(const Config& config) {
  return config.home + "/health";
}

Result<std::string> read_boot_id() {
  CKPT_TRY(text, read_file("/proc/sys/kernel/random/boot_id", 100));
  return text.substr(0, text.find('\n'));
}

bool is_its_process(const Job& job, std::int32_t pid) {
  if (job.rank_pid() == 0) return false;
  if (static_cast<std::int32_t>(job.rank_pid()) == pid) return true;
  const auto tree = host::processes_of(static_cast<pid_t>(job.rank_pid()));
  if (!tree) return false;
  return std::find(tree.assume_value().begin(), tree.assume_value().end(), pid) != tree.assume_value().end();
}

}  // namespace

HealthMonitor::HealthMonitor(const HealthParts& parts, HealthRecord record, health::PolicyTable table)
    : parts_(parts), record_(std::move(record)), table_(std::move(table)), to_save_(parts.executor) {
  for (const PastXid& past : record_.past) {
    health::Occurrence occurrence;
    occurrence.time_ms = past.time_ms;
    occurrence.gpu = past.gpu;
    occurrence.xid = past.xid;
    occurrence.job = past.job;
    history_.add(std::move(occurrence));
  }
  durable_number_ = record_.next_number - 1;
}

Result<std::unique_ptr<HealthMonitor>> HealthMonitor::create(const HealthParts& parts) {
  auto table = health::PolicyTable::built_in();
  for (const std::string& path : parts.config.health_tables) {
    CKPT_TRYV(table.override_with_file(path));
  }
  CKPT_TRY(record, load_health(record_path(parts.config)));
  std::unique_ptr<HealthMonitor> monitor(new HealthMonitor(parts, std::move(record), std::move(table)));
  CKPT_TRYV(monitor->listen_to_coordinator());
  return monitor;
}

Result<void> HealthMonitor::listen_to_coordinator() {
  CKPT_TRY(boot_id, read_boot_id());
  boot_id_ = boot_id;
  parts_.coordinator.take(wire::HealthSettings::kFrame,
                          [this](std::span<const std::byte> body) -> Result<void> {
                            CKPT_TRY(settings, wire::decode<wire::HealthSettings>(body));
                            return on_settings(settings);
                          });
  parts_.coordinator.at_each_connection([this] { report(); });
  return ok();
}

void HealthMonitor::start() {
  control::spawn(parts_.executor, "health record", save_loop());
  // What an earlier agent saw and had not decided on.
  for (const SeenEvent& seen : std::vector<SeenEvent>(record_.seen)) open_window(seen.gpu);
  start_kernel_log();
  start_helper();
}

void HealthMonitor::stop() {
  stopped_ = true;
  windows_.clear();
  if (helper_) helper_->stop();
  if (log_) log_->stop();
  to_save_.notify();
}

void HealthMonitor::start_helper() {
  HealthHelperSettings settings;
  settings.program = parts_.helper_program;
  settings.library = parts_.config.nvml;
  settings.log_path = parts_.config.home + "/health.log";
  settings.silence = parts_.config.health_silence;
  settings.poll = std::min(settings.poll, std::max(Milliseconds(10), settings.silence / 4));
  HealthHelper::Handlers handlers;
  handlers.report = [this](const nvml_watch::Report& report) { on_report(report); };
  handlers.silent = [this] { on_silence(); };
  handlers.answers = [this] { on_answers(); };
  helper_ = HealthHelper::create(parts_.executor, std::move(settings), std::move(handlers));
  helper_->start();
}

void HealthMonitor::start_kernel_log() {
  std::string path = parts_.config.kernel_log;
  if (path.empty()) return;
  const bool by_default = path == "auto";
  if (by_default) path = kDefaultKernelLog;
  auto reader = KernelLogReader::create(parts_.executor, parts_.files, path);
  if (!reader) {
    spdlog::log(by_default ? spdlog::level::info : spdlog::level::err, "no kernel log: reason {}",
                reader.assume_error().to_string());
    return;
  }
  log_ = std::move(reader).assume_value();
  first_reading_ = record_.boot_id.empty();
  if (record_.boot_id != boot_id_) record_.sequence = 0;
  record_.boot_id = boot_id_;
  KernelLogReader::Handlers handlers;
  handlers.record = [this](const health::KernelRecord& record) { on_record(record); };
  handlers.caught_up = [this] {
    first_reading_ = false;
    save();
  };
  log_->start(std::move(handlers));
}

void HealthMonitor::gpus_are(const std::vector<GpuFacts>& gpus) {
  bool changed = false;
  for (const GpuFacts& facts : gpus) {
    if (facts.uuid.empty()) continue;
    KnownGpu* known = gpu_of_uuid(facts.uuid);
    if (known == nullptr) known = &record_.gpus.emplace_back();
    changed = changed || known->uuid != facts.uuid || known->index != facts.index ||
              known->bus_id != facts.bus_id || known->model != facts.name;
    known->uuid = facts.uuid;
    known->index = facts.index;
    known->bus_id = facts.bus_id;
    known->model = facts.name;
  }
  if (changed) save();
}

KnownGpu* HealthMonitor::gpu_of_uuid(const std::string& uuid) {
  for (KnownGpu& gpu : record_.gpus) {
    if (!uuid.empty() && gpu.uuid == uuid) return &gpu;
  }
  return nullptr;
}

KnownGpu* HealthMonitor::gpu_at(const health::PciAddress& address) {
  for (KnownGpu& gpu : record_.gpus) {
    if (health::parse_pci(gpu.bus_id) == address) return &gpu;
  }
  return nullptr;
}

void HealthMonitor::on_report(const nvml_watch::Report& report) {
  if (report.kind == nvml_watch::Kind::kGpu) {
    helper_gpus_[report.gpu] = nvml_watch::gpu_name(report).uuid;
    return;
  }
  if (report.kind != nvml_watch::Kind::kState && report.kind != nvml_watch::Kind::kXid) return;
  KnownGpu* gpu = gpu_of_uuid(helper_gpus_[report.gpu]);
  if (gpu == nullptr) return;  // of another node on this machine
  if (report.kind == nvml_watch::Kind::kState) return on_state(*gpu, report);
  SeenEvent event;
  event.gpu = gpu->uuid;
  event.source = "nvml";
  event.xid = report.xid;
  saw(std::move(event));
}

// Only a change for the worse is an event; the state is kept, so that a restarted agent does not take it for new.
void HealthMonitor::on_state(KnownGpu& gpu, const nvml_watch::Report& report) {
  const KnownGpu before = gpu;
  gpu.lost = (report.flags & nvml_watch::kLost) != 0;
  if (!gpu.lost) {
    gpu.recovery_known = (report.flags & nvml_watch::kRecoveryKnown) != 0;
    gpu.recovery = report.recovery;
    gpu.remap_pending = (report.flags & nvml_watch::kRemapPending) != 0;
    gpu.remap_failed = (report.flags & nvml_watch::kRemapFailed) != 0;
  }
  SeenEvent event;
  event.gpu = gpu.uuid;
  if (gpu.lost && !before.lost) {
    event.source = "nvml";
    event.lost = true;
    return saw(std::move(event));
  }
  if (gpu.recovery != before.recovery && gpu.recovery != 0) {
    event.source = "recovery-action";
    return saw(std::move(event));
  }
  const bool rows =
      (gpu.remap_pending && !before.remap_pending) || (gpu.remap_failed && !before.remap_failed);
  if (rows) {
    event.source = "nvml";
    event.xid = gpu.remap_failed && !before.remap_failed ? 64 : 63;
    return saw(std::move(event));
  }
  save();
}

void HealthMonitor::on_silence() {
  for (KnownGpu& gpu : record_.gpus) {
    if (std::exchange(gpu.silent, true)) continue;
    SeenEvent event;
    event.gpu = gpu.uuid;
    event.source = "watchdog";
    saw(std::move(event));
  }
}

void HealthMonitor::on_answers() {
  for (KnownGpu& gpu : record_.gpus) gpu.silent = false;
  save();
}

void HealthMonitor::on_record(const health::KernelRecord& record) {
  const bool known = record.sequence <= record_.sequence && record_.sequence != 0;
  if (known) return;
  record_.sequence = record.sequence;
  if (record.facility != 0 || first_reading_) return;
  for (const health::LogEvent& event : parser_.take(record.text)) {
    if (const auto* identity = std::get_if<health::IdentityLine>(&event)) {
      if (KnownGpu* gpu = gpu_of_uuid(identity->uuid); gpu != nullptr && gpu->bus_id.empty())
        gpu->bus_id = identity->gpu.to_string();
      continue;
    }
    const auto* xid = std::get_if<health::XidLine>(&event);
    const health::PciAddress address = xid != nullptr ? xid->gpu : std::get<health::LostLine>(event).gpu;
    KnownGpu* gpu = gpu_at(address);
    if (gpu == nullptr) {
      spdlog::info("kernel log: gpu {} is none of this node's", address.to_string());
    } else if (xid != nullptr) {
      on_xid(*gpu, *xid, record.text);
    } else {
      SeenEvent lost;
      lost.gpu = gpu->uuid;
      lost.source = "kernel-log";
      lost.lost = true;
      saw(std::move(lost));
    }
  }
}

void HealthMonitor::on_xid(KnownGpu& gpu, const health::XidLine& line, const std::string& text) {
  SeenEvent event;
  event.gpu = gpu.uuid;
  event.source = "kernel-log";
  event.xid = line.xid;
  event.pid = line.pid;
  event.line = text.substr(0, kMostLineBytes);
  const auto job = line.pid == 0 ? nullptr : job_of_pid(line.pid);
  if (job) {
    event.job = job->id();
    event.incarnation = job->incarnation();
  }
  saw(std::move(event));
}

std::shared_ptr<Job> HealthMonitor::job_of_pid(std::int32_t pid) const {
  std::shared_ptr<Job> found;
  for (const auto& job : parts_.jobs.all()) {
    if (!is_its_process(*job, pid)) continue;
    if (!found || found->ended()) found = job;
  }
  return found;
}

void HealthMonitor::saw(SeenEvent event) {
  const std::string uuid = event.gpu;
  spdlog::warn("gpu event: uuid {} source {} xid {} pid {}", uuid, event.source, event.xid, event.pid);
  const auto count = std::count_if(record_.seen.begin(), record_.seen.end(),
                                   [&](const SeenEvent& other) { return other.gpu == uuid; });
  if (static_cast<std::size_t>(count) >= kMostSeen) return;  // a flood says nothing that is new
  if (count == 0) {
    const KnownGpu* gpu = gpu_of_uuid(uuid);
    for (const auto& job : parts_.jobs.all()) {
      if (gpu == nullptr || job->ended() || job->gpu() != gpu->index) continue;
      Bystander bystander;
      bystander.gpu = uuid;
      bystander.job = job->id();
      bystander.incarnation = job->incarnation();
      record_.bystanders.push_back(std::move(bystander));
    }
  }
  record_.seen.push_back(std::move(event));
  save();
  open_window(uuid);
}

void HealthMonitor::open_window(const std::string& uuid) {
  auto& timer = windows_[uuid];
  if (timer || stopped_) return;
  timer = std::make_unique<asio::steady_timer>(parts_.executor, parts_.config.health_window);
  timer->async_wait([this, uuid](boost::system::error_code cancelled) {
    if (cancelled) return;
    windows_.erase(uuid);
    decide(uuid);
  });
}

// Running jobs of the GPU, and those that were there when it began, or that a line names, and have ended badly since.
std::vector<std::shared_ptr<Job>> HealthMonitor::jobs_concerned(const KnownGpu& gpu,
                                                                const std::vector<SeenEvent>& seen) const {
  std::vector<std::shared_ptr<Job>> jobs;
  for (const auto& job : parts_.jobs.all()) {
    const auto is_it = [&](const auto& other) {
      return other.gpu == gpu.uuid && other.job == job->id() && other.incarnation == job->incarnation();
    };
    const bool was_there = std::any_of(record_.bystanders.begin(), record_.bystanders.end(), is_it) ||
                           std::any_of(seen.begin(), seen.end(), is_it);
    const bool died = job->ended() && !job->record().moved && job->record().exit_code != 0;
    if (parts_.jobs.superseded(*job)) continue;
    if (job->ended() ? was_there && died : job->gpu() == gpu.index) jobs.push_back(job);
  }
  return jobs;
}

// Processes are numbered by their place in `jobs`, from 1.
health::Evidence HealthMonitor::evidence_of(const KnownGpu& gpu, const std::vector<SeenEvent>& seen,
                                            const std::vector<std::shared_ptr<Job>>& jobs) const {
  health::Evidence evidence;
  evidence.gpu.lost = gpu.lost;
  evidence.gpu.silent = gpu.silent;
  if (gpu.recovery_known && !gpu.silent) evidence.gpu.recovery = gpu.recovery;
  evidence.gpu.contains_errors = health::contains_memory_errors(gpu.model);
  for (const auto& job : jobs) {
    health::ProcessFacts process;
    process.pid = static_cast<std::int32_t>(evidence.processes.size()) + 1;
    process.probe = job->ended() ? health::Probe::kDead : health::Probe::kUnknown;
    evidence.processes.push_back(process);
  }
  for (const SeenEvent& event : seen) {
    evidence.gpu.lost = evidence.gpu.lost || event.lost;
    const bool told_better =
        event.source == "nvml" && std::any_of(seen.begin(), seen.end(), [&](const SeenEvent& other) {
          return other.source == "kernel-log" && other.xid == event.xid;
        });
    if (event.xid == 0 || told_better) continue;
    health::SeenXid xid;
    if (const auto line = health::parse_xid_line(event.line)) xid = health::seen_of(table_, *line);
    xid.xid = event.xid;
    if (event.pid != 0) xid.victim = -1;  // somebody else's
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (event.job == jobs[i]->id() && event.incarnation == jobs[i]->incarnation())
        xid.victim = static_cast<std::int32_t>(i) + 1;
    }
    health::RepeatRule rule;
    rule.jobs = parts_.config.health_repeats;
    if (const health::XidRow* row = table_.xid(event.xid))
      xid.suspicion = history_.suspicion(gpu.uuid, *row, wall_clock_ms(), rule);
    evidence.xids.push_back(std::move(xid));
  }
  return evidence;
}

void HealthMonitor::remember_xids(const std::vector<SeenEvent>& seen) {
  for (const SeenEvent& event : seen) {
    if (event.xid == 0) continue;
    health::Occurrence occurrence;
    occurrence.time_ms = wall_clock_ms();
    occurrence.gpu = event.gpu;
    occurrence.xid = event.xid;
    occurrence.job = event.job;
    history_.add(std::move(occurrence));
  }
  record_.past.clear();
  for (const health::Occurrence& occurrence : history_.all()) {
    PastXid past;
    past.time_ms = occurrence.time_ms;
    past.gpu = occurrence.gpu;
    past.xid = occurrence.xid;
    past.job = occurrence.job;
    record_.past.push_back(std::move(past));
  }
}

void HealthMonitor::decide(const std::string& uuid) {
  const KnownGpu* gpu = gpu_of_uuid(uuid);
  std::vector<SeenEvent> seen;
  for (const SeenEvent& event : record_.seen) {
    if (event.gpu == uuid) seen.push_back(event);
  }
  if (gpu == nullptr || seen.empty()) return;
  remember_xids(seen);
  const auto jobs = jobs_concerned(*gpu, seen);
  const health::Decision decision = health::decide(table_, evidence_of(*gpu, seen, jobs));
  wire::HealthFinding finding = finding_of(*gpu, seen, jobs, decision);
  finding.number = record_.next_number++;
  finding.time_ms = wall_clock_ms();
  spdlog::warn("gpu finding: number {} gpu {} xid {} recovery {} outcome {} cordon {} reason {}",
               finding.number, finding.gpu, finding.xid, finding.recovery,
               health::to_string(decision.outcome), finding.cordon, finding.reason);
  record_.findings.push_back(std::move(finding));
  if (record_.findings.size() > kMostFindings) drop_least(record_.findings);
  std::erase_if(record_.seen, [&](const SeenEvent& event) { return event.gpu == uuid; });
  std::erase_if(record_.bystanders, [&](const Bystander& bystander) { return bystander.gpu == uuid; });
  save();
}

void HealthMonitor::save() {
  dirty_ = true;
  to_save_.notify();
}

Task<> HealthMonitor::save_loop() {
  while (!stopped_) {
    co_await to_save_.wait(std::chrono::steady_clock::time_point::max());
    while (dirty_ && !stopped_) {
      dirty_ = false;
      const std::uint64_t number = record_.next_number - 1;
      const auto write = [path = record_path(parts_.config), bytes = encode_health(record_)] {
        return save_health(path, bytes);
      };
      auto saved = co_await offload(parts_.disk, write);
      if (saved) {
        if (std::exchange(durable_number_, number) != number) report();
        continue;
      }
      // Told only when durable: a number must never be given twice.
      spdlog::error("health record not written: reason {}", saved.assume_error().to_string());
      dirty_ = true;
      asio::steady_timer pause(parts_.executor, kSaveAgain);
      boost::system::error_code ignored;
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
  }
}

void HealthMonitor::report() {
  for (const wire::HealthReport& part : reports_of(record_.findings, durable_number_))
    parts_.coordinator.tell(part);
}

Result<void> HealthMonitor::on_settings(const wire::HealthSettings& settings) {
  if (std::exchange(paused_, settings.paused) != settings.paused)
    spdlog::info("gpu policy: paused {}", settings.paused);
  // More than this folder ever gave: of an earlier installation of the node.
  if (settings.known_number >= record_.next_number) return ok();
  const auto gone = std::erase_if(record_.findings, [&](const wire::HealthFinding& finding) {
    return finding.number <= settings.known_number;
  });
  if (gone > 0) save();
  return ok();
}

}  // namespace ckpt::agent
