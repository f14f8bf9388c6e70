// SPDX-License-Identifier: Apache-2.0
// The coordinator daemon. It owns the store, the journal, the tables, the port for agents and the API, and
// connects them.
// Threads: the thread that runs `io`. Ownership: owns all parts; `io` must outlive it. Errors: create()
// returns the obstacle (folder in use, damaged journal, port taken). Afterwards only a call of `fatal`
// terminates the coordinator.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "coordinator/api/api.h"
#include "coordinator/api/cluster_section.h"
#include "coordinator/daemon/service_parts.h"
#include "libckpt/net/control/listener.h"

namespace ckpt::coordinator {

class Coordinator {
 public:
  // Creates a coordinator. `fatal` is called if it is unknown whether a journal record is on disk; the
  // process must then exit and be restarted. `fallback` replaces the coordinator's own images as the fallback
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
  [[nodiscard]] JobTable& jobs() { return tables_.jobs; }
  [[nodiscard]] MigrationTable& migrations() { return tables_.migrations; }
  [[nodiscard]] MigrationRunner& migration_runner() { return migrations_.runner; }
  [[nodiscard]] JobMoves& job_moves() { return moves_.job_moves; }
  [[nodiscard]] Store& store() { return tables_.store; }

  [[nodiscard]] const metrics::Registry& metrics() const { return api_services_.metrics.registry(); }

  // Closes ports and connections. The jobs continue to run.
  void stop();

 private:
  Coordinator(control::asio::io_context& io, Config config, Store store, Journals journals,
              const std::function<void(const Error&)>& fatal, const std::string& peer_token,
              Images* fallback);
  [[nodiscard]] CoreParts core() { return {tables_, migrations_, image_tables_, images_}; }
  Result<void> load();
  Result<void> open_identity();
  Result<void> listen_for_agents();
  Result<void> listen();
  void close_denied();
  Result<void> announce();
  control::Task<HttpResponse> answer(HttpRequest request);
  // Returns the answer to a change once the change is durable. If the store's sync fails, returns an error
  // with status 500 instead.
  control::Task<HttpResponse> once_durable(HttpResponse response);
  [[nodiscard]] std::vector<std::string> metrics_tokens() const;

  // The coordinator's parts, declared in the order of their dependencies.
  CoordinatorTables tables_;
  MigrationServices migrations_;
  ImageTables image_tables_;
  ImageServices images_;
  MoveServices moves_;
  MaintenanceServices maintenance_;
  NodeServices nodes_;
  ApiServices api_services_;
  std::shared_ptr<tls::Identity> identity_;  // the coordinator's TLS identity; null: no TLS
  RoleTokens tokens_;
  std::string agent_token_;
  std::string metrics_token_;                      // the token that permits reading /metrics and nothing else
  std::optional<ClusterSection> cluster_section_;  // the API's cluster section; set once the agents' address
                                                   // is known
  std::unique_ptr<Api> api_;
  std::shared_ptr<HttpServer> http_;
  std::shared_ptr<control::Listener> listener_;
};

}  // namespace ckpt::coordinator
