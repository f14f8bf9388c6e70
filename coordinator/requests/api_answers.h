// SPDX-License-Identifier: Apache-2.0
// The common form of the HTTP API's answers (docs/api.md): a JSON body, or an error. An error has a code, and
// the exit code that a command returns for it. Pure functions.
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
// Returns the answer to a caller whose role does not permit the call.
[[nodiscard]] HttpResponse forbidden(const std::string& reason);
// The longest time that a call may wait for a change, and the default time.
inline constexpr std::int64_t kMaxWaitMs = 60'000;
inline constexpr std::int64_t kDefaultWaitMs = 30'000;
// Returns a number from 0 to `max_value` from the query. Returns kInvalidArgument for any other text.
Result<std::int64_t> query_number(const HttpRequest& request, const char* key, std::int64_t fallback,
                                  std::int64_t max_value);
// The requested part of a list (`limit`, `after`). Without a limit it is the whole list.
struct Page {
  static constexpr std::int64_t kMaxLimit = 1'000;
  std::size_t limit = 0;  // the maximum number of entries; 0: no limit was given
  std::string after;      // the id of the last entry that the caller has
};
Result<Page> page_of(const HttpRequest& request);
// Returns the whole list unchanged, or a page as an object with the cursor for the next request. `next` is
// null after the last page.
[[nodiscard]] HttpResponse page_response(const Page& page, const char* name, json items, bool more);

[[nodiscard]] Error no_such_call(const HttpRequest& request);

[[nodiscard]] inline bool is_get(const HttpRequest& request) {
  return request.method == "GET";
}
[[nodiscard]] inline bool is_post(const HttpRequest& request) {
  return request.method == "POST";
}

// Returns the id of the entry that `given` refers to (find_meant() of libckpt/protocol/wire/ids.h).
template <class Map>
[[nodiscard]] std::optional<std::uint64_t> meant(const Map& entries, std::optional<std::uint64_t> given) {
  if (!given) return std::nullopt;
  const auto at = wire::find_meant(entries, *given);
  return at == entries.end() ? std::nullopt : std::optional(at->first);
}

}  // namespace ckpt::coordinator
