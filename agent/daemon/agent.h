// SPDX-License-Identifier: Apache-2.0
// The agent of one node. It connects inventory, jobs, movers, migrations and links. Everything runs on one
// event loop, except fsync and the GPU library, which have separate threads. Jobs and their keepers outlive
// the agent, but movers exit when the agent does.
// Threads: the loop, in run(). Errors: create() returns the reason why the agent cannot serve the node
// (journal locked or damaged, port taken, folder not writable).
#pragma once

#include <map>
#include <memory>
#include <set>

#include "agent/coordinator_link/certificate_renewal.h"
#include "agent/coordinator_link/coordinator_link.h"
#include "agent/coordinator_link/denied_certificates.h"
#include "agent/coordinator_link/descriptions.h"
#include "agent/coordinator_link/gang_orders.h"
#include "agent/coordinator_link/move_checks.h"
#include "agent/coordinator_link/network_checks.h"
#include "agent/daemon/job_orders.h"
#include "agent/daemon/metrics.h"
#include "agent/daemon/metrics_server.h"
#include "agent/daemon/moves.h"
#include "agent/daemon/node_gpus.h"
#include "agent/daemon/transfers.h"
#include "agent/gpus/inventory.h"
#include "agent/health/monitor.h"
#include "agent/host_process/named_memory/shared_folder_watch.h"
#include "agent/io/file_watch.h"
#include "agent/jobs/job_memory.h"
#include "agent/jobs/job_table.h"
#include "agent/migration/pause_forecast.h"
#include "agent/settings/config.h"
#include "agent/snapshots/protection.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::agent {

class Agent : public AgentCommands, private JobOwner {
 public:
  static Result<std::unique_ptr<Agent>> create(Config config);
  ~Agent() override;

  // Runs until SIGTERM or SIGINT.
  Result<void> run();

  [[nodiscard]] const metrics::Registry& metrics() const { return metrics_->registry(); }

  [[nodiscard]] wire::NodeInventory inventory() const override;
  void introduce(wire::AgentHello& hello) const override { descriptions_->introduce(hello); }
  Task<Result<void>> start_job(wire::JobSpec spec) override;
  Task<Result<void>> stop_job(wire::StopJob stop) override;
  Task<Result<void>> forget_job(wire::ForgetJob forget) override;
  Task<Result<wire::LogData>> read_job_log(wire::ReadLog request) override;
  Task<Result<wire::ProcessFacts>> inspect(wire::InspectProcess request) override;
  Result<void> set_limits(const wire::SetLimits& limits) override;
  void welcome(const wire::Welcome& welcome) override;
  void commit_message(wire::CommitMessage message) override;

 private:
  explicit Agent(Config config);
  Result<void> open();
  Result<void> find_programs();
  Result<void> open_jobs();
  Result<void> open_identity();
  void close_denied();
  Result<void> open_moves();
  Result<void> open_metrics();
  [[nodiscard]] std::set<wire::JobId> live_jobs() const;
  Task<> start();
  Task<> detect_criu();
  Task<> rehearse(std::string criu_version);
  Task<> refresh_loop();
  Task<> tidy_logs();
  // Implements JobOwner. No job exists before all parts are created.
  void job_changed(const std::shared_ptr<Job>& job) override;
  void known_again(const std::shared_ptr<Job>& job) override;
  Task<Result<void>> save_before_kill(std::shared_ptr<Job> job) override;
  void create_context();
  void create_snapshot_service();
  void stop();

  static constexpr std::size_t kImageThreads = 8;  // limit for the number of processes that are packed and
                                                   // unpacked at the same time

  Config config_;
  std::vector<wire::DataNetwork> networks_;  // networks whose addresses belong to this machine
  asio::io_context io_{1};
  asio::thread_pool disk_{1};     // thread of the journal, for which a handover waits
  asio::thread_pool records_{2};  // threads that write jobs' records
  asio::thread_pool images_{kImageThreads};
  asio::signal_set signals_;
  AsyncEvent refresh_;  // notifies the refresh loop; a notification during a query triggers another query
  Nanos logs_tidy_until_ = 0;
  Inventory inventory_;
  std::shared_ptr<FileWatch> files_;
  std::optional<host::SharedFolderWatch> shared_names_;  // empty if this kernel does not report which process
                                                         // creates a file
  std::optional<JobEnvironment> environment_;
  std::optional<JobTable> jobs_;
  std::optional<JobMemory> memory_;
  std::optional<NodeGpus> gpus_;
  protect::OpenSnapshots snapshots_;
  std::optional<Transfers> transfers_;
  std::optional<MigrationContext> context_;
  std::shared_ptr<tls::Identity> identity_;  // this node's certificate and key; null without TLS
  std::shared_ptr<tls::DeniedSerials> denied_ = std::make_shared<tls::DeniedSerials>();
  std::unique_ptr<CoordinatorLink> coordinator_;
  std::unique_ptr<HealthMonitor> health_;
  std::shared_ptr<ContextHelper> contexts_;
  std::optional<RemapChoice> remap_;
  std::optional<JobOrders> job_orders_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<MetricsServer> metrics_server_;
  std::optional<GangLink> gang_link_;
  std::unique_ptr<Moves> moves_;
  std::optional<GangOrders> gang_orders_;
  std::unique_ptr<PauseForecast> forecast_;
  std::unique_ptr<protect::Protection> protection_;
  std::optional<Descriptions> descriptions_;
  std::optional<MoveChecks> move_checks_;
  std::optional<NetworkChecks> network_checks_;
  std::optional<CertificateRenewal> renewal_;
  std::optional<DeniedCertificates> denials_;
  std::string programs_;  // the folder of this program and its helpers
  std::string mover_program_;
  bool moves_processes_ = false;
  std::string process_reason_ = "the agent has not looked for CRIU yet";
  std::map<std::string, wire::JobPhase> known_phases_;  // last reported phases, by the instance's folder
  std::optional<Error> failure_;  // error with which run() returns; empty if there is none
  bool stopping_ = false;
};

}  // namespace ckpt::agent
