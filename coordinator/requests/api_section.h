// SPDX-License-Identifier: Apache-2.0
// A part of the HTTP API that stands in a file of its own: asked before the calls of api.cc.
// Threads: one io_context on one thread. Ownership: the coordinator's, it outlives the server. Errors become
// JSON (api_answers.h).
#pragma once

#include "coordinator/requests/http.h"
#include "libckpt/base/result.h"
#include "libckpt/net/control/asio.h"

namespace ckpt::coordinator {

class ApiSection {
 public:
  virtual ~ApiSection() = default;
  // The request is one of routes.h by a caller who may make it. Its `peer` is a client of the role that counts.
  [[nodiscard]] virtual bool takes(const HttpRequest& request) const = 0;
  virtual control::Task<Result<HttpResponse>> handle(HttpRequest request) = 0;
};

}  // namespace ckpt::coordinator
