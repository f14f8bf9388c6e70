// SPDX-License-Identifier: Apache-2.0
// The health of this node's GPUs: hears NVML (by a process that may hang) and the kernel's log, holds what it hears for a moment, since an
// Xid seldom comes alone, decides by libckpt/health for each job, and tells the coordinator until that has it (wire::HealthReport). It acts on
// nothing itself. What is seen is durable before it counts and decided on once (health_record.h).
// Threads: the event loop; writing on the pool. Ownership: the agent's. Errors: create() when the record cannot be read or a table is
// wrong; afterwards nothing ends it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/config.h"
#include "agent/coordinator_link.h"
#include "agent/health/health_helper.h"
#include "agent/health/health_record.h"
#include "agent/health/kernel_log_reader.h"
#include "agent/inventory.h"
#include "agent/job_table.h"
#include "libckpt/health/decide.h"
#include "libckpt/health/history.h"

namespace ckpt::agent {

struct HealthParts {
  const Config& config;
  asio::any_io_executor executor;
  asio::thread_pool& disk;
  const JobTable& jobs;
  FileWatch& files;
  CoordinatorLink& coordinator;
  std::string helper_program;
};

class HealthMonitor {
 public:
  // Takes its frames of the coordinator's; before the link starts.
  static Result<std::unique_ptr<HealthMonitor>> create(const HealthParts& parts);
  HealthMonitor(const HealthMonitor&) = delete;
  HealthMonitor& operator=(const HealthMonitor&) = delete;

  // The node's GPUs as the inventory found them: once before start(), then at every refresh.
  void gpus_are(const std::vector<GpuFacts>& gpus);
  void start();
  void stop();
  // `policy pause`, as the coordinator said last.
  [[nodiscard]] bool paused() const noexcept { return paused_; }

 private:
  HealthMonitor(const HealthParts& parts, HealthRecord record, health::PolicyTable table);
  Result<void> listen_to_coordinator();
  void start_kernel_log();
  void start_helper();

  void on_report(const nvml_watch::Report& report);
  void on_state(KnownGpu& gpu, const nvml_watch::Report& report);
  void on_silence();
  void on_answers();
  void on_record(const health::KernelRecord& record);
  void on_xid(KnownGpu& gpu, const health::XidLine& line, const std::string& text);

  KnownGpu* gpu_of_uuid(const std::string& uuid);
  KnownGpu* gpu_at(const health::PciAddress& address);
  void saw(SeenEvent event);
  void open_window(const std::string& uuid);
  void decide(const std::string& uuid);
  health::Evidence evidence_of(const KnownGpu& gpu, const std::vector<SeenEvent>& seen,
                               const std::vector<std::shared_ptr<Job>>& jobs) const;
  std::vector<std::shared_ptr<Job>> jobs_concerned(const KnownGpu& gpu,
                                                   const std::vector<SeenEvent>& seen) const;
  [[nodiscard]] std::shared_ptr<Job> job_of_pid(std::int32_t pid) const;
  void remember_xids(const std::vector<SeenEvent>& seen);

  void save();
  Task<> save_loop();
  void report();
  Result<void> on_settings(const wire::HealthSettings& settings);

  HealthParts parts_;
  HealthRecord record_;
  health::PolicyTable table_;
  health::History history_;
  health::KernelLogParser parser_;
  std::shared_ptr<HealthHelper> helper_;
  std::shared_ptr<KernelLogReader> log_;
  std::map<std::uint32_t, std::string> helper_gpus_;                    // UUIDs by NVML's numbers
  std::map<std::string, std::unique_ptr<asio::steady_timer>> windows_;  // by UUID
  std::string boot_id_;
  bool first_reading_ = false;  // the log is read for the first time ever: what is in it is old
  bool caught_up_ = false;
  Signal to_save_;
  bool dirty_ = false;
  std::uint64_t durable_number_ = 0;  // findings up to it are on disk and may be told
  bool paused_ = false;
  bool stopped_ = false;
};

}  // namespace ckpt::agent
