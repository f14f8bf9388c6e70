// SPDX-License-Identifier: Apache-2.0
// The common form of the HTTP API's answers (docs/api.md): a JSON body, or an error. An error has its code
// and the exit code that a command gives for it. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/requests/http.h"
#include "coordinator/requests/json.h"
#include "libckpt/base/result.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::coordinator {

[[nodiscard]] HttpResponse to_response(unsigned status, const json& body);
[[nodiscard]] HttpResponse error_response(unsigned status, const char* code, const std::string& message,
                                          int exit_code);
[[nodiscard]] HttpResponse error_response(const Error& error);
// The caller's role may not do this.
[[nodiscard]] HttpResponse forbidden(const std::string& reason);
// How long a call may wait for a change, and how long it does if it does not name a time.
inline constexpr std::int64_t kMaxWaitMs = 60'000;
inline constexpr std::int64_t kDefaultWaitMs = 30'000;
// A number from 0 to `max_value` of the query; kInvalidArgument for anything else there.
Result<std::int64_t> query_number(const HttpRequest& request, const char* key, std::int64_t fallback,
                                  std::int64_t max_value);
// The part of a list that is asked for (`limit`, `after`); without a limit it is the whole list.
struct Page {
  static constexpr std::int64_t kMaxLimit = 1'000;
  std::size_t limit = 0;  // 0: none was given
  std::string after;      // the id of the last one that the caller has
};
Result<Page> page_of(const HttpRequest& request);
// The whole list as it is; a page as an object, with what to ask for next: `next` is null behind the last
// one.
[[nodiscard]] HttpResponse page_response(const Page& page, const char* name, json items, bool more);

[[nodiscard]] Error no_such_call(const HttpRequest& request);

[[nodiscard]] inline bool is_get(const HttpRequest& request) {
  return request.method == "GET";
}
[[nodiscard]] inline bool is_post(const HttpRequest& request) {
  return request.method == "POST";
}

// The id of the entry that is meant (find_meant() of libckpt/protocol/wire/ids.h).
template <class Map>
[[nodiscard]] std::optional<std::uint64_t> meant(const Map& entries, std::optional<std::uint64_t> given) {
  if (!given) return std::nullopt;
  const auto at = wire::find_meant(entries, *given);
  return at == entries.end() ? std::nullopt : std::optional(at->first);
}

}  // namespace ckpt::coordinator
