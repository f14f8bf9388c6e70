// SPDX-License-Identifier: Apache-2.0
// The coordinator daemon. It owns the store, the journal, the tables, the port for agents and the API, and
// connects them.
// Threads: the thread that runs `io`. Ownership: owns all parts; `io` must outlive it. Errors: create()
// returns the obstacle (folder in use, damaged journal, port taken). Afterwards only `fatal` ends the
// coordinator.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "coordinator/api/api.h"
#include "coordinator/api/cluster_section.h"
#include "coordinator/api/health_section.h"
#include "coordinator/api/image_api.h"
#include "coordinator/api/job_section.h"
#include "coordinator/api/maintenance_section.h"
#include "coordinator/api/migration_section.h"
#include "coordinator/certificates/certificate_renewals.h"
#include "coordinator/certificates/denied_certificates.h"
#include "coordinator/cluster/backups.h"
#include "coordinator/cluster/housekeeping.h"
#include "coordinator/cluster/node_joins.h"
#include "coordinator/cluster/node_removals.h"
#include "coordinator/cluster/recovery.h"
#include "coordinator/daemon/image_parts.h"
#include "coordinator/daemon/live_job_view.h"
#include "coordinator/daemon/node_events.h"
#include "coordinator/health/faults_by_findings.h"
#include "coordinator/maintenance/overcommit.h"
#include "coordinator/maintenance/rebalance.h"
#include "coordinator/maintenance/resumes.h"
#include "coordinator/operations/metrics.h"
#include "coordinator/output/output_copier.h"
#include "coordinator/state/store_sync.h"
#include "libckpt/net/control/listener.h"

namespace ckpt::coordinator {

class Coordinator {
 public:
  // Creates a coordinator. `fatal` is called if it is unknown whether a journal record is on disk; the
  // process must then end and be restarted. `fallback` replaces the coordinator's own images as the fallback
  // of drains and evacuations. It must outlive the coordinator.
  static Result<std::unique_ptr<Coordinator>> create(control::asio::io_context& io, Config config,
                                                     std::function<void(const Error&)> fatal,
                                                     Images* fallback = nullptr);

  // These functions return the addresses where the coordinator listens. The addresses are also in api.json.
  [[nodiscard]] std::string api_url() const { return http_->url(); }  // returns an empty string without TCP
  [[nodiscard]] std::string api_socket() const;  // returns unix:/path, or an empty string without a socket
  [[nodiscard]] const std::string& agent_address() const { return listener_->address(); }
  [[nodiscard]] const std::string& token() const { return tokens_.admin; }
  [[nodiscard]] const std::string& agent_token() const { return agent_token_; }
  [[nodiscard]] Images& images() { return images_.job_images; }
  [[nodiscard]] const HttpServer& http() const { return *http_; }
  [[nodiscard]] JobTable& jobs() { return jobs_; }
  [[nodiscard]] MigrationTable& migrations() { return migrations_; }
  [[nodiscard]] MigrationRunner& migration_runner() { return migration_runner_; }
  [[nodiscard]] JobMoves& job_moves() { return job_moves_; }
  [[nodiscard]] Store& store() { return store_; }

  [[nodiscard]] const metrics::Registry& metrics() const { return metrics_.registry(); }

  // Closes ports and connections. The jobs continue to run.
  void stop();

 private:
  struct Journals {
    migration::Journal handovers;
    gang::GangJournal gangs;  // the journal for moves of ranks
  };
  Coordinator(control::asio::io_context& io, Config config, Store store, Journals journals,
              std::function<void(const Error&)> fatal, const std::string& peer_token, Images* fallback);
  [[nodiscard]] ImageDependencies image_dependencies();
  Result<void> load();
  Result<void> open_identity();
  Result<void> listen_for_agents();
  Result<void> listen();
  void close_denied();
  Result<void> announce();
  control::Task<HttpResponse> answer(HttpRequest request);
  // Delays the answer to a change until the change is durable.
  control::Task<HttpResponse> once_durable(HttpResponse response);
  [[nodiscard]] std::vector<std::string> metrics_tokens() const;

  control::asio::any_io_executor executor_;
  Config config_;
  Store store_;
  StoreSync store_sync_;
  EventLog events_;
  CordonTable cordons_;
  PolicyTable policy_;
  MigrationTable migrations_;
  JobTable jobs_;
  NodeTable nodes_;
  ImageCatalog catalog_;
  LiveJobView job_view_;
  JobRunner job_runner_;
  JobAdmission admission_;
  RemovedNodes removed_nodes_;
  NodeFrames node_frames_;
  NodeCalls node_calls_;
  HealthTable health_;
  FaultsByFindings faults_;
  DeniedCertificates denied_;
  MigrationRunner migration_runner_;
  OrderSender order_sender_;
  Backups backups_;
  RunningSnapshots snapshots_;
  JobStates states_;
  Planner planner_;
  GangRendezvous rendezvous_;
  ImageTables image_tables_;
  ImageServices images_;
  ImageApi image_api_;
  Moves moves_;
  Overcommit overcommit_;
  Resumes resumes_;
  Service service_;
  OutputCopies output_copies_;
  OutputCopier output_copier_;
  LogReader logs_;
  GangMoves gang_moves_;
  JobMoves job_moves_;
  Recovery recovery_;
  JobSection job_section_;
  MigrationSection migration_section_;
  DrainTable drain_table_;
  Drains drains_;
  EvacuationTable evacuation_table_;
  Evacuations evacuations_;
  NodeEvents node_events_;
  NodeSessions sessions_;
  NodeRemovals removals_;
  MaintenanceSection maintenance_;
  HealthSection health_section_;
  Metrics metrics_;
  Rebalancer rebalancer_;
  Housekeeping housekeeping_;
  CertificateRenewals renewals_;
  NodeJoins joins_;
  std::shared_ptr<tls::Identity> identity_;  // the coordinator's TLS identity; null: no TLS
  RoleTokens tokens_;
  std::string agent_token_;
  std::string metrics_token_;                      // the token that permits reading /metrics and nothing else
  std::optional<ClusterSection> cluster_section_;  // the section, which exists once the address for agents is
                                                   // known
  std::unique_ptr<Api> api_;
  std::shared_ptr<HttpServer> http_;
  std::shared_ptr<control::Listener> listener_;
};

}  // namespace ckpt::coordinator
