// SPDX-License-Identifier: Apache-2.0
// The health of this node's GPUs. The monitor receives events of NVML (nvml_channel.h) and of the kernel's
// log (kernel_channel.h). It collects events briefly, because an Xid seldom comes alone. Then libckpt/health
// decides for each job (evidence.h). If no other fact decides, the GPU itself is probed (gpu_probes.h).
// Findings are sent to the coordinator until it has acknowledged them (wire::HealthReport). The monitor
// itself takes no action. An event is durable before it counts, and is decided once (health_record.h).
// Threads: the event loop. The pool writes the record. Ownership: the agent owns it. Errors: create() fails
// if the record cannot be read or a table is wrong. Later errors do not end the monitor.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/coordinator_link/coordinator_link.h"
#include "agent/health/evidence.h"
#include "agent/health/gpu_probes.h"
#include "agent/health/health_record.h"
#include "agent/health/kernel_channel.h"
#include "agent/health/known_gpus.h"
#include "agent/health/nvml_channel.h"
#include "agent/jobs/job_table.h"
#include "agent/settings/config.h"

namespace ckpt::agent {

struct HealthParts {
  const Config& config;
  asio::any_io_executor executor;
  asio::thread_pool& disk;
  const JobTable& jobs;
  FileWatch& files;
  CoordinatorLink& coordinator;
  std::string helper_program;  // path of gpumigrate-health
  std::string probe_program;   // path of gpumigrate-context
};

class HealthMonitor {
 public:
  // Creates the monitor and registers its frame handlers with the coordinator link. Call this before the link
  // starts.
  static Result<std::unique_ptr<HealthMonitor>> create(const HealthParts& parts);
  HealthMonitor(const HealthMonitor&) = delete;
  HealthMonitor& operator=(const HealthMonitor&) = delete;

  // Handles the inventory's result. Call this once before start(), then at every refresh.
  void on_inventory(const InventorySnapshot& newest);
  void start();
  void stop();
  // Returns the GPU, or null if it is not known yet.
  [[nodiscard]] const KnownGpu* gpu(const std::string& uuid) const { return gpus_.of_uuid(uuid); }
  // Returns true while `policy pause` is in force, according to the coordinator's last message.
  [[nodiscard]] bool paused() const noexcept { return paused_; }

 private:
  HealthMonitor(const HealthParts& parts, HealthRecord record, health::XidTable table);
  void listen_to_coordinator();
  void start_helper();

  void saw(SeenEvent event);
  void open_window(const std::string& uuid);
  void evaluate(const std::string& uuid);
  void remember_xids(const std::string& uuid);
  bool waits_for_probe(const std::vector<SeenEvent>& seen, const health::Evidence& evidence,
                       const health::Decision& decision);
  void start_probes();
  Task<> probe_loop();
  void on_probe(const std::string& uuid, const GpuProbeAnswer& answer);

  void save();
  Task<> save_loop();
  void report();
  Result<void> on_settings(const wire::HealthSettings& settings);

  HealthParts parts_;
  HealthRecord record_;
  health::XidTable table_;
  health::History history_;
  KnownGpus gpus_;  // GPUs of the record
  NvmlChannel nvml_;
  KernelChannel kernel_;
  std::shared_ptr<GpuProbes> probes_;  // probes of the GPUs; null if this agent has none
  asio::steady_timer next_probe_;
  std::map<std::string, std::unique_ptr<asio::steady_timer>> windows_;  // timers of the open windows, by UUID
  AsyncEvent to_save_;
  bool dirty_ = false;
  std::uint64_t durable_number_ = 0;  // findings up to this number are on disk and may be sent
  bool paused_ = false;
  bool stopped_ = false;
};

}  // namespace ckpt::agent
