// SPDX-License-Identifier: Apache-2.0
// The port on which the agent shows its metrics (settings metrics_address, metrics_token_file); off unless
// it is set. Over TCP it serves clients with a client's certificate.
// Where it listens stands in the file metrics.address of the node's folder; a port that the system chose is
// kept across restarts.
// Threads: the event loop. Ownership: owns the listener; the registry outlives it. Errors: create() returns
// why it cannot listen.
#pragma once

#include <memory>
#include <string>

#include "agent/settings/config.h"
#include "libckpt/net/control/http_server.h"
#include "libckpt/net/metrics/registry.h"

namespace ckpt::agent {

class MetricsServer {
 public:
  static Result<std::unique_ptr<MetricsServer>> create(control::asio::any_io_executor executor,
                                                       const Config& config,
                                                       std::shared_ptr<tls::Identity> identity,
                                                       std::shared_ptr<const tls::DeniedSerials> denied,
                                                       const metrics::Registry& registry);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  [[nodiscard]] const std::string& where() const noexcept { return where_; }  // a URL, or unix:/path
  // Ends the connections of clients whose certificates are denied by now.
  void close_denied(const tls::DeniedSerials& denied);

 private:
  MetricsServer() = default;
  std::string where_;
  std::shared_ptr<control::HttpServer> http_;
};

}  // namespace ckpt::agent
