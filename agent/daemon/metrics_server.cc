// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/metrics_server.h"

#include <unistd.h>

#include "libckpt/base/fd.h"
#include "libckpt/net/metrics/page.h"

namespace ckpt::agent {
namespace {

constexpr std::size_t kMaxAddressBytes = 256;
constexpr std::size_t kMaxTokenBytes = 4096;

// Returns the tokens that may read the metrics. Without a token file, every client that reaches the port may
// read.
Result<std::vector<std::string>> tokens_of(const std::string& path) {
  std::vector<std::string> tokens;
  if (path.empty()) return tokens;
  CKPT_TRY(text, read_file(path, kMaxTokenBytes));
  std::string token = text;
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  if (token.empty())
    return Error(ErrorCode::kInvalidArgument, path + " is empty: it must hold the token for /metrics");
  tokens.push_back(std::move(token));
  return tokens;
}

// Returns the address of an earlier run if the system is to choose the port and the host is the same.
// Otherwise the function returns `wanted`.
std::string kept_address(const std::string& file, const std::string& wanted) {
  const auto stored = read_file(file, kMaxAddressBytes);
  const std::string host = wanted.substr(0, wanted.rfind(':') + 1);
  const bool fits = wanted.ends_with(":0") && stored && stored->starts_with(host);
  return fits ? *stored : wanted;
}

// Admits any client of the cluster, because the page contains nothing that a viewer may not know.
Result<void> admit_client(const tls::Peer& peer) {
  if (peer.kind == tls::Peer::Kind::kClient) return ok();
  return Error(ErrorCode::kRefused, "The certificate is that of " + to_text(peer) + ", not of a client");
}

}  // namespace

Result<std::unique_ptr<MetricsServer>> MetricsServer::create(control::asio::any_io_executor executor,
                                                             const Config& config,
                                                             std::shared_ptr<tls::Identity> identity,
                                                             std::shared_ptr<const tls::DeniedSerials> denied,
                                                             const metrics::Registry& registry) {
  CKPT_TRY(tokens, tokens_of(config.metrics_token_file));
  const std::string file = config.home + "/metrics.address";
  const auto handle = [&registry,
                       tokens](control::HttpRequest request) -> control::Task<control::HttpResponse> {
    if (!metrics::is_page(request)) co_return metrics::text_response(404, "This server serves only /metrics");
    co_return metrics::answer(registry, request, tokens);
  };
  const auto listen = [&](const std::string& address) {
    control::HttpServer::Settings settings;
    settings.tls = {identity, control::except(denied, admit_client)};
    (address.starts_with("unix:") ? settings.socket : settings.address) = address;
    return control::HttpServer::create(executor, std::move(settings), handle, metrics::text_response);
  };
  const std::string address = kept_address(file, config.metrics_address);
  auto http = listen(address);
  if (!http && address != config.metrics_address)
    http = listen(config.metrics_address);  // tried without the earlier port, because a different process
                                            // uses that port now
  if (!http) return std::move(http).error();
  std::unique_ptr<MetricsServer> server(new MetricsServer());
  server->http_ = *std::move(http);
  server->where_ =
      server->http_->address().empty() ? config.metrics_address : server->http_->url() + "/metrics";
  CKPT_TRYV(write_file_durably(file, server->http_->address()));
  return server;
}

void MetricsServer::close_denied(const tls::DeniedSerials& denied) {
  http_->close_where([&denied](const tls::Peer& peer) { return denied.contains(peer.serial); });
}

MetricsServer::~MetricsServer() {
  http_->close();
}

}  // namespace ckpt::agent
