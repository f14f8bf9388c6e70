// SPDX-License-Identifier: Apache-2.0
// The target of an HTTP request in origin form (RFC 9112): "/a%20b/c?x=1&y" as path and query. A plus sign is
// not decoded to a space.
// Threads: plain values and a pure function. Errors: nullopt for a target that is not in origin form, has a
// malformed escape, or is longer than kMaxHttpTargetBytes.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::control {

inline constexpr std::size_t kMaxHttpTargetBytes = 16 << 10;

struct HttpTarget {
  std::vector<std::string> path;             // the decoded segments of the path
  std::map<std::string, std::string> query;  // the decoded parameters of the query; the last value of a
                                             // repeated key
};
[[nodiscard]] std::optional<HttpTarget> parse_http_target(std::string_view text);

}  // namespace ckpt::control
