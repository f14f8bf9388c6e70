// SPDX-License-Identifier: Apache-2.0
// One coordinator: owns store, journal, tables, the port for agents and the API, and wires them together.
// Threads: the thread that runs `io`. Ownership: everything; `io` must outlive it. Errors: create() says what
// keeps it from starting (folder in use, damaged journal, port taken); afterwards only `fatal` ends it.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "coordinator/api/api.h"
#include "coordinator/api/health_section.h"
#include "coordinator/api/image_api.h"
#include "coordinator/api/maintenance_section.h"
#include "coordinator/cluster/backups.h"
#include "coordinator/cluster/housekeeping.h"
#include "coordinator/cluster/node_removals.h"
#include "coordinator/cluster/recovery.h"
#include "coordinator/maintenance/overcommit.h"
#include "coordinator/maintenance/rebalance.h"
#include "coordinator/operations/metrics.h"
#include "coordinator/state/store_sync.h"
#include "libckpt/net/control/listener.h"

namespace ckpt::coordinator {

class Coordinator {
 public:
  // `fatal`: a journal record of unknown fate; the process must end and start again.
  static Result<std::unique_ptr<Coordinator>> create(control::asio::io_context& io, Config config,
                                                     std::function<void(const Error&)> fatal);

  // Where it listens; also in api.json.
  [[nodiscard]] std::string api_url() const { return "http://" + http_->address(); }
  [[nodiscard]] const std::string& agent_address() const { return listener_->address(); }
  [[nodiscard]] const std::string& token() const { return token_; }
  [[nodiscard]] const std::string& agent_token() const { return agent_token_; }
  [[nodiscard]] Images& images() { return images_; }
  [[nodiscard]] const HttpServer& http() const { return *http_; }
  [[nodiscard]] JobTable& jobs() { return jobs_; }
  [[nodiscard]] MigrationTable& migrations() { return migrations_; }
  [[nodiscard]] Store& store() { return store_; }

  [[nodiscard]] const metrics::Registry& metrics() const { return metrics_.registry(); }

  // What drains and evacuations fall back on; once, before `io` runs. It must outlive the coordinator.
  void use_images(Images* images);

  // Closes ports and connections; the jobs run on.
  void stop();

 private:
  Coordinator(control::asio::io_context& io, Config config, Store store, migration::Journal journal,
              std::function<void(const Error&)> fatal, std::string peer_token);
  NodeTable::Listener node_listener();
  Result<void> load();
  Result<void> listen();
  Result<void> announce();
  control::Task<HttpResponse> answer(HttpRequest request);
  // What a client is told of a change stays.
  control::Task<HttpResponse> once_durable(HttpResponse response);
  [[nodiscard]] std::vector<std::string> metrics_tokens() const;
  control::Task<> start_again(JobId id);
  void forget_at(const Node& node);

  control::asio::any_io_executor executor_;
  Config config_;
  Store store_;
  EventLog events_;
  CordonTable cordons_;
  PolicyTable policy_;
  NodeTable nodes_;
  JobTable jobs_;
  MigrationTable migrations_;
  Stops stops_;
  NodeRemovals removals_;
  Backups backups_;
  Service service_;
  ImageTable images_;
  Recovery recovery_;
  ImageApi image_api_;
  Overcommit overcommit_;
  DrainTable drains_;
  HealthTable health_;
  Evacuations evacuations_;
  MaintenanceSection maintenance_;
  HealthSection health_section_;
  Metrics metrics_;
  Rebalancer rebalancer_;
  Housekeeping housekeeping_;
  std::set<JobId> starting_;  // being started again after their node came back
  std::string token_;
  std::string agent_token_;
  std::string metrics_token_;  // reads /metrics and nothing else
  std::unique_ptr<Api> api_;
  std::shared_ptr<HttpServer> http_;
  std::shared_ptr<control::Listener> listener_;
  std::unique_ptr<StoreSync> store_sync_;  // of store_, once all else is loaded
};

}  // namespace ckpt::coordinator
