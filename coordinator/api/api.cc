// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/api.h"

#include <algorithm>

#include "coordinator/requests/api_answers.h"
#include "coordinator/requests/authorize.h"
#include "coordinator/requests/redaction.h"
#include "coordinator/requests/routes.h"

namespace ckpt::coordinator {

HttpResponse Api::refuse(unsigned status, const std::string& reason) {
  if (status == 503) return error_response(status, "unavailable", reason, 5);
  return status >= 500 ? error_response(status, "internal", reason, 6)
                       : error_response(status, "usage", reason, 64);
}

bool Api::waits(const HttpRequest& request) {
  if (!is_get(request) || request.path.empty()) return false;
  const auto asks = [&](const char* field) {
    const auto at = request.query.find(field);
    return at != request.query.end() && at->second != "0";
  };
  const std::string& verb = request.path.back();
  return verb == "watch" || verb == "wait" || asks("follow_ms") || asks("timeout_ms");
}

std::optional<Role> Api::role_of(const HttpRequest& request) const {
  constexpr std::string_view kBearer = "Bearer ";
  // A caller on the Unix socket is an admin. There the server accepts only root and the coordinator's own
  // user.
  const std::optional<Role> certified =
      request.user ? std::optional(Role::kAdmin) : coordinator::role_of(request.peer);
  const std::string_view given = request.authorization;
  if (given.empty()) return certified;
  if (!given.starts_with(kBearer)) return std::nullopt;
  const std::optional<Role> shown = tokens_.role_of(given.substr(kBearer.size()));
  return certified && shown ? std::min(certified, shown) : shown;
}

std::optional<HttpResponse> Api::admit(HttpRequest& request) const {
  const Route* call = find_route(request);
  if (request.peer.kind == tls::Peer::Kind::kJoiner) {
    if (call != nullptr && call->path == "join") return std::nullopt;
    return forbidden("A join token permits only joining the cluster");
  }
  const std::optional<Role> role = role_of(request);
  if (!role)
    return error_response(401, "unauthorized",
                          "A token is required: see token_file in the coordinator's api.json", 64);
  if (call == nullptr) return error_response(404, "usage", no_such_call(request).to_string(), 64);
  const auto refusal = refusal_of(request, *call, *role);
  if (!refusal) return error_response(refusal.error());
  if (*refusal) return forbidden(**refusal);
  request.peer = tls::Peer::client(to_text(*role));
  return std::nullopt;
}

control::Task<HttpResponse> Api::handle(HttpRequest request) {
  if (auto refused = admit(request)) co_return std::move(*refused);
  const Role role = coordinator::role_of(request.peer).value_or(Role::kViewer);
  auto answer = co_await route(std::move(request));
  if (!answer) co_return shown_to(role, error_response(answer.error()));
  co_return shown_to(role, *std::move(answer));
}

control::Task<Result<HttpResponse>> Api::route(HttpRequest request) {
  for (ApiSection* section : sections_) {
    if (section->handles(request)) co_return co_await section->handle(std::move(request));
  }
  co_return no_such_call(request);
}

}  // namespace ckpt::coordinator
