// SPDX-License-Identifier: Apache-2.0
// The HTTP API of docs/api.md: finds the caller's role, and refuses what that may not do (requests/routes.h). Other
// calls go to the section that takes them. The role is that of the client's certificate or of the token that it
// shows; with both, the lesser one. A token that is wrong is refused, whatever the certificate.
// Threads: one io_context on one thread. Ownership: borrows the sections, which outlive the server. Errors
// become JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/requests/api_section.h"
#include "coordinator/requests/http.h"
#include "coordinator/requests/roles.h"

namespace ckpt::coordinator {

class Api {
 public:
  // A call goes to the first section that takes it.
  Api(RoleTokens tokens, std::vector<ApiSection*> sections)
      : tokens_(std::move(tokens)), sections_(std::move(sections)) {}

  control::Task<HttpResponse> handle(HttpRequest request);
  static HttpResponse refuse(unsigned status, const std::string& reason);
  // The call may be answered only after a change: a long poll.
  static bool waits(const HttpRequest& request);

 private:
  // The answer to a caller that may not make the call. Else its role stands in `peer`.
  [[nodiscard]] std::optional<HttpResponse> admit(HttpRequest& request) const;
  // Nobody: nothing shown that counts.
  [[nodiscard]] std::optional<Role> role_of(const HttpRequest& request) const;
  control::Task<Result<HttpResponse>> route(HttpRequest request);

  RoleTokens tokens_;
  std::vector<ApiSection*> sections_;
};

}  // namespace ckpt::coordinator
