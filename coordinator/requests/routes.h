// SPDX-License-Identifier: Apache-2.0
// The one table of the HTTP API's calls, each with the least role that may make it (docs/api.md, "Calls", which
// a test compares). A call that is not in it does not exist, whatever a section would do with it.
// Threads: pure functions.
#pragma once

#include <span>
#include <string_view>

#include "coordinator/requests/http.h"
#include "coordinator/requests/roles.h"

namespace ckpt::coordinator {

struct Route {
  std::string_view method;
  std::string_view path;  // behind /v1/; a capital letter begins a piece that may be any text
  Role min_role;
};

[[nodiscard]] std::span<const Route> all_routes();
// Null: there is no such call.
[[nodiscard]] const Route* find_route(const HttpRequest& request);

}  // namespace ckpt::coordinator
