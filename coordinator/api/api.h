// SPDX-License-Identifier: Apache-2.0
// The HTTP API of docs/api.md. It determines the caller's role and refuses calls that the role may not make
// (requests/routes.h). Each other call is passed to the section that handles it. The role is that of the
// client's certificate or of the token in the request. With both, the lesser role applies. A wrong token is
// refused, whatever the certificate.
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
  // Takes the sections in order of precedence: a call goes to the first section that accepts the call.
  Api(RoleTokens tokens, std::vector<ApiSection*> sections)
      : tokens_(std::move(tokens)), sections_(std::move(sections)) {}

  control::Task<HttpResponse> handle(HttpRequest request);
  static HttpResponse refuse(unsigned status, const std::string& reason);
  // Checks whether the call may be answered only after a change (a long poll).
  static bool waits(const HttpRequest& request);

 private:
  // Returns the refusal for a caller that may not make the call. Otherwise stores the caller's role in
  // `request.peer`.
  [[nodiscard]] std::optional<HttpResponse> admit(HttpRequest& request) const;
  // Returns the caller's role, or nullopt if the request has no valid credentials.
  [[nodiscard]] std::optional<Role> role_of(const HttpRequest& request) const;
  control::Task<Result<HttpResponse>> route(HttpRequest request);

  RoleTokens tokens_;
  std::vector<ApiSection*> sections_;
};

}  // namespace ckpt::coordinator
