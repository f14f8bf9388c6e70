// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/metrics/page.h"

#include <algorithm>

#include "libckpt/net/control/connection.h"

namespace ckpt::metrics {
namespace {

bool may_read(const control::HttpRequest& request, const std::vector<std::string>& tokens) {
  constexpr std::string_view kBearer = "Bearer ";
  if (tokens.empty() || request.peer.kind == tls::Peer::Kind::kClient) return true;
  const std::string_view given = request.authorization;
  if (request.user && given.empty()) return true;
  if (!given.starts_with(kBearer)) return false;
  return std::any_of(tokens.begin(), tokens.end(), [&](const std::string& token) {
    return control::same_token(given.substr(kBearer.size()), token);
  });
}

}  // namespace

bool is_page(const control::HttpRequest& request) {
  return request.path.size() == 1 && request.path.front() == "metrics";
}

control::HttpResponse text_response(unsigned status, const std::string& text) {
  control::HttpResponse response(status, text + "\n");
  response.content_type = "text/plain; charset=utf-8";
  return response;
}

control::HttpResponse answer(const Registry& registry, const control::HttpRequest& request,
                             const std::vector<std::string>& tokens) {
  if (!may_read(request, tokens)) {
    auto refused = text_response(401, "A token is needed: see docs/metrics.md");
    refused.headers.emplace_back("WWW-Authenticate", "Bearer");
    return refused;
  }
  if (request.method != "GET") return text_response(405, "/metrics must be read with GET");
  control::HttpResponse response(200, registry.page());
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  return response;
}

}  // namespace ckpt::metrics
