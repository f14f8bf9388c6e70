// SPDX-License-Identifier: Apache-2.0
// A part of the HTTP API in a file of its own. Sections take precedence over the calls of api.cc.
// Threads: one io_context on one thread. Ownership: the coordinator's, which outlives the server. Errors
// become JSON (api_answers.h).
#pragma once

#include "coordinator/requests/http.h"
#include "libckpt/base/result.h"
#include "libckpt/net/control/asio.h"

namespace ckpt::coordinator {

class ApiSection {
 public:
  virtual ~ApiSection() = default;
  // Returns whether the section handles the request. The request is a call of routes.h, and the caller's role
  // permits it. Its `peer` has the effective role.
  [[nodiscard]] virtual bool handles(const HttpRequest& request) const = 0;
  virtual control::Task<Result<HttpResponse>> handle(HttpRequest request) = 0;
};

}  // namespace ckpt::coordinator
