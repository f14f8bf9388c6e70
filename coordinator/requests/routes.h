// SPDX-License-Identifier: Apache-2.0
// The one table of the HTTP API's calls, each with the lowest role that may make it (docs/api.md, "Calls",
// which a test compares). A call that is not in the table does not exist, even if a section would handle it.
// Threads: pure functions.
#pragma once

#include <span>
#include <string_view>

#include "coordinator/requests/http.h"
#include "coordinator/requests/roles.h"

namespace ckpt::coordinator {

struct Route {
  std::string_view method;
  std::string_view path;  // the path after /v1/; a segment that begins with a capital letter matches any text
  Role min_role;
};

[[nodiscard]] std::span<const Route> all_routes();
// Returns the route of the request, or null if there is no such call.
[[nodiscard]] const Route* find_route(const HttpRequest& request);

}  // namespace ckpt::coordinator
