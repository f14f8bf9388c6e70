// SPDX-License-Identifier: Apache-2.0
// The port on which the agent serves its metrics (settings metrics_address, metrics_token_file). It is closed
// unless the address is set. Over TCP it serves clients with a client certificate. Its address is recorded in
// the file metrics.address of the node's folder. A port that the system chose is used again after restarts.
// Threads: the event loop. Ownership: owns the listener. The registry outlives it. Errors: create() returns
// the reason why it cannot listen.
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

  [[nodiscard]] const std::string& where() const noexcept { return where_; }  // returns a URL, or unix:/path
  // Closes the connections of clients whose certificates are now denied.
  void close_denied(const tls::DeniedSerials& denied);

 private:
  MetricsServer() = default;
  std::string where_;
  std::shared_ptr<control::HttpServer> http_;
};

}  // namespace ckpt::agent
