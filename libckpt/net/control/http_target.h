// SPDX-License-Identifier: Apache-2.0
// What a request asks for: "/a%20b/c?x=1&y" as path and query. Threads: values and a pure function. Errors:
// nothing, for what does not begin with a slash or has a malformed escape.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::control {

struct HttpTarget {
  HttpTarget() = default;
  std::vector<std::string> path;             // decoded segments
  std::map<std::string, std::string> query;  // decoded; of a key that comes twice the last
};
std::optional<HttpTarget> parse_http_target(std::string_view text);

}  // namespace ckpt::control
