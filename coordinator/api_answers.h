// SPDX-License-Identifier: Apache-2.0
// What all calls of the HTTP API answer alike (docs/api.md): a JSON body, or an error with its code and the exit code that a command
// gives for it. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/api_json.h"
#include "coordinator/http.h"
#include "libckpt/base/result.h"

namespace ckpt::coordinator {

[[nodiscard]] HttpResponse to_response(unsigned status, const json& body);
[[nodiscard]] HttpResponse error_response(unsigned status, const char* code, const std::string& message,
                                          int exit_code);
[[nodiscard]] HttpResponse error_response(const Error& error);
// A number from 0 to `most` of the query; kInvalidArgument for anything else there.
Result<std::int64_t> query_number(const HttpRequest& request, const char* key, std::int64_t fallback,
                                  std::int64_t most);
[[nodiscard]] Error no_such_call(const HttpRequest& request);

[[nodiscard]] inline bool is_get(const HttpRequest& request) {
  return request.method == "GET";
}
[[nodiscard]] inline bool is_post(const HttpRequest& request) {
  return request.method == "POST";
}

}  // namespace ckpt::coordinator
