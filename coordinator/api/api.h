// SPDX-License-Identifier: Apache-2.0
// The HTTP API of docs/api.md: checks the token, and hands each call to the section that takes it.
// Threads: one io_context on one thread. Ownership: borrows the sections, which outlive the server. Errors
// become JSON.
#pragma once

#include <string>
#include <vector>

#include "coordinator/requests/api_section.h"
#include "coordinator/requests/http.h"

namespace ckpt::coordinator {

class Api {
 public:
  // A call goes to the first section that takes it.
  Api(std::string token, std::vector<ApiSection*> sections)
      : token_(std::move(token)), sections_(std::move(sections)) {}

  control::Task<HttpResponse> handle(HttpRequest request);
  static HttpResponse refuse(unsigned status, const std::string& why);
  // The call may be answered only after a change: a long poll.
  static bool waits(const HttpRequest& request);

 private:
  control::Task<Result<HttpResponse>> route(HttpRequest request);

  std::string token_;
  std::vector<ApiSection*> sections_;
};

}  // namespace ckpt::coordinator
