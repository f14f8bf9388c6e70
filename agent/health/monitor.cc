// SPDX-License-Identifier: Apache-2.0
#include "agent/health/monitor.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "agent/health/findings.h"
#include "libckpt/base/clock.h"

namespace ckpt::agent {
namespace {

constexpr std::size_t kMaxFindings = 1000;
constexpr std::size_t kMaxSeen = 256;  // limit for the events of one GPU in one window
constexpr std::chrono::seconds kSaveAgain{5};

std::string record_path(const Config& config) {
  return config.home + "/health";
}

}  // namespace

HealthMonitor::HealthMonitor(const HealthParts& parts, HealthRecord record, health::XidTable table)
    : parts_(parts),
      record_(std::move(record)),
      table_(std::move(table)),
      gpus_(record_.gpus),
      nvml_(gpus_, {[this](SeenEvent event) { saw(std::move(event)); }, [this] { save(); }}),
      kernel_(record_, gpus_, {[this](SeenEvent event) { saw(std::move(event)); }, [this] { save(); }}),
      next_probe_(parts.executor),
      to_save_(parts.executor) {
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
  auto table = health::XidTable::built_in();
  for (const std::string& path : parts.config.health_tables) {
    CKPT_TRYV(table.override_with_file(path));
  }
  CKPT_TRY(record, load_health(record_path(parts.config)));
  std::unique_ptr<HealthMonitor> monitor(new HealthMonitor(parts, std::move(record), std::move(table)));
  monitor->listen_to_coordinator();
  return monitor;
}

void HealthMonitor::listen_to_coordinator() {
  parts_.coordinator.subscribe(wire::HealthSettings::kFrame,
                               [this](std::span<const std::byte> body) -> Result<void> {
                                 CKPT_TRY(settings, wire::decode<wire::HealthSettings>(body));
                                 return on_settings(settings);
                               });
  parts_.coordinator.at_each_connection([this] { report(); });
}

void HealthMonitor::start() {
  control::spawn(parts_.executor, "health record", save_loop());
  // An earlier agent saw these events and exited before it had decided about them.
  for (const SeenEvent& seen : std::vector<SeenEvent>(record_.seen)) open_window(seen.gpu);
  auto reads = kernel_.start(parts_.executor, parts_.files, parts_.config.kernel_log);
  if (!reads) spdlog::error("kernel log unavailable: reason {}", reads.error().to_string());
  start_helper();
  start_probes();
}

void HealthMonitor::stop() {
  stopped_ = true;
  windows_.clear();
  nvml_.stop();
  kernel_.stop();
  if (probes_) probes_->stop();
  next_probe_.cancel();
  to_save_.notify();
}

void HealthMonitor::start_helper() {
  HealthHelperSettings settings;
  settings.program = parts_.helper_program;
  settings.library = parts_.config.nvml;
  settings.log_path = parts_.config.home + "/health.log";
  settings.silence = parts_.config.health_silence;
  settings.poll = std::min(settings.poll, std::max(Milliseconds(10), settings.silence / 4));
  nvml_.start(parts_.executor, std::move(settings));
}

void HealthMonitor::start_probes() {
  if (parts_.config.health_probe_deadline.count() == 0) return;
  GpuProbeSettings settings;
  settings.program = parts_.probe_program;
  settings.folder = parts_.config.home;
  settings.deadline = parts_.config.health_probe_deadline;
  probes_ = GpuProbes::create(
      parts_.executor, std::move(settings),
      [this](const std::string& uuid, const GpuProbeAnswer& answer) { on_probe(uuid, answer); });
  if (parts_.config.health_probe_interval.count() > 0)
    control::spawn(parts_.executor, "gpu probes", probe_loop());
}

Task<> HealthMonitor::probe_loop() {
  while (!stopped_) {
    next_probe_.expires_after(parts_.config.health_probe_interval);
    boost::system::error_code ignored;
    co_await next_probe_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    if (stopped_) co_return;
    for (const KnownGpu& gpu : record_.gpus) {
      if (!gpu.gone && !gpu.lost) probes_->ask(gpu.uuid);
    }
  }
}

// Reports a probe's answer that a decision waits for, or a result that is worse than the last one. A better
// result is not reported, because users uncordon a GPU that works again.
void HealthMonitor::on_probe(const std::string& uuid, const GpuProbeAnswer& answer) {
  KnownGpu* gpu = gpus_.of_uuid(uuid);
  if (gpu == nullptr || stopped_) return;
  const auto result = static_cast<std::uint8_t>(answer.result);
  const bool changed = std::exchange(gpu->probe, result) != result;
  const bool bad = answer.result == health::GpuProbe::kFailed || answer.result == health::GpuProbe::kHung;
  const bool awaited = std::any_of(record_.seen.begin(), record_.seen.end(),
                                   [&](const SeenEvent& seen) { return seen.gpu == uuid; });
  if (awaited || (bad && changed)) {
    SeenEvent event;
    event.gpu = uuid;
    event.source = kProbeSource;
    event.probe = result;
    event.line = answer.detail;
    return saw(std::move(event));
  }
  if (changed) save();
}

void HealthMonitor::on_inventory(const InventorySnapshot& newest) {
  const KnownGpus::Changes changes = gpus_.follow(newest);
  for (const std::string& uuid : changes.gone) {
    spdlog::error("gpu lost: uuid {}", uuid);
    SeenEvent event;
    event.gpu = uuid;
    event.source = "inventory";
    saw(std::move(event));
  }
  if (changes.cards) nvml_.cards_changed();
  if (changes.any) save();
}

void HealthMonitor::saw(SeenEvent event) {
  const std::string uuid = event.gpu;
  spdlog::warn("gpu event: uuid {} source {} xid {} pid {}", uuid, event.source, event.xid, event.pid);
  const auto count = std::count_if(record_.seen.begin(), record_.seen.end(),
                                   [&](const SeenEvent& other) { return other.gpu == uuid; });
  // Beyond the limit, further events are ignored. The exception is a probe's answer, for which the decision
  // waits.
  if (static_cast<std::size_t>(count) >= kMaxSeen && event.source != kProbeSource) return;
  if (const auto job = event.pid == 0 ? nullptr : job_of_pid(parts_.jobs, event.pid)) {
    event.job = job->id();
    event.incarnation = job->incarnation();
  }
  if (const KnownGpu* gpu = gpus_.of_uuid(uuid); gpu != nullptr && count == 0) {
    for (Bystander& bystander : bystanders_of(parts_.jobs, *gpu))
      record_.bystanders.push_back(std::move(bystander));
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
    evaluate(uuid);
  });
}

void HealthMonitor::remember_xids(const std::string& uuid) {
  for (SeenEvent& event : record_.seen) {
    if (event.gpu != uuid || event.xid == 0 || std::exchange(event.remembered, true)) continue;
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

// Checks whether the decision must wait for a probe, and requests a probe if none was requested yet. The
// probe's answer is an event, and opens the window again.
bool HealthMonitor::waits_for_probe(const std::vector<SeenEvent>& seen, const health::Evidence& evidence,
                                    const health::Decision& decision) {
  const bool answered = std::any_of(seen.begin(), seen.end(),
                                    [](const SeenEvent& event) { return event.source == kProbeSource; });
  if (!probes_ || answered || !health::wants_probe(table_, evidence, decision)) return false;
  probes_->ask(seen.front().gpu);
  return true;
}

void HealthMonitor::evaluate(const std::string& uuid) {
  const KnownGpu* gpu = gpus_.of_uuid(uuid);
  remember_xids(uuid);
  std::vector<SeenEvent> seen;
  for (const SeenEvent& event : record_.seen) {
    if (event.gpu == uuid) seen.push_back(event);
  }
  if (gpu == nullptr || seen.empty()) return;
  const auto jobs = jobs_concerned(parts_.jobs, *gpu, seen, record_.bystanders);
  const EvidenceRules rules{table_, history_, parts_.config.health_repeats, wall_clock_ms()};
  const health::Evidence evidence = evidence_of(*gpu, seen, jobs, rules);
  const health::Decision decision = health::decide(table_, evidence);
  if (waits_for_probe(seen, evidence, decision)) return save();
  wire::HealthFinding finding = finding_of(*gpu, seen, jobs, decision);
  finding.number = record_.next_number++;
  finding.time_ms = wall_clock_ms();
  spdlog::warn("gpu finding: number {} gpu {} xid {} recovery {} outcome {} cordon {} reason {}",
               finding.number, finding.gpu, finding.xid, finding.recovery,
               health::to_string(decision.outcome), finding.cordon, finding.reason);
  record_.findings.push_back(std::move(finding));
  if (record_.findings.size() > kMaxFindings) drop_least(record_.findings);
  std::erase_if(record_.seen, [&](const SeenEvent& event) { return event.gpu == uuid; });
  std::erase_if(record_.bystanders, [&](const Bystander& bystander) { return bystander.gpu == uuid; });
  gpus_.erase_replaced(uuid);
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
      // A finding is sent only after it is durable, because a number must never be used twice.
      spdlog::error("health record not written: reason {}", saved.error().to_string());
      dirty_ = true;
      asio::steady_timer pause(parts_.executor, kSaveAgain);
      boost::system::error_code ignored;
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
  }
}

void HealthMonitor::report() {
  for (const wire::HealthReport& part : reports_of(record_.findings, durable_number_))
    parts_.coordinator.send(part);
}

Result<void> HealthMonitor::on_settings(const wire::HealthSettings& settings) {
  if (std::exchange(paused_, settings.paused) != settings.paused)
    spdlog::info("gpu policy: paused {}", settings.paused);
  // The number is higher than all numbers of this folder, so it comes from an earlier installation of the
  // node.
  if (settings.known_number >= record_.next_number) return ok();
  const auto gone = std::erase_if(record_.findings, [&](const wire::HealthFinding& finding) {
    return finding.number <= settings.known_number;
  });
  if (gone > 0) save();
  return ok();
}

}  // namespace ckpt::agent
