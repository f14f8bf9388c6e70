// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/api.h"

#include "coordinator/requests/api_answers.h"
#include "libckpt/net/control/connection.h"

namespace ckpt::coordinator {

HttpResponse Api::refuse(unsigned status, const std::string& why) {
  if (status == 503) return error_response(status, "unavailable", why, 5);
  return status >= 500 ? error_response(status, "internal", why, 6)
                       : error_response(status, "usage", why, 64);
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

control::Task<HttpResponse> Api::handle(HttpRequest request) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view given = request.authorization;
  if (!given.starts_with(kBearer) || !control::same_token(given.substr(kBearer.size()), token_))
    co_return error_response(401, "unauthorized",
                             "A token is needed: see token_file in the coordinator's api.json", 64);
  const bool known = request.path.size() >= 2 && request.path.size() <= 4 && request.path[0] == "v1";
  if (!known) co_return error_response(404, "usage", no_such_call(request).to_string(), 64);
  auto answer = co_await route(std::move(request));
  if (!answer) co_return error_response(answer.assume_error());
  co_return std::move(answer).assume_value();
}

control::Task<Result<HttpResponse>> Api::route(HttpRequest request) {
  for (ApiSection* section : sections_) {
    if (section->takes(request)) co_return co_await section->handle(std::move(request));
  }
  co_return no_such_call(request);
}

}  // namespace ckpt::coordinator
