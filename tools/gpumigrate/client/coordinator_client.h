// SPDX-License-Identifier: Apache-2.0
// The coordinator's API (docs/api.md) as calls that return JSON. Every call reads the address again
// (access.h), because a restarted coordinator may listen at another address.
// Threads: one. Errors: those of HttpClient, and the coordinator's refusals with their own messages.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/gpumigrate/client/http_client.h"

namespace ckpt::cli {

using Json = nlohmann::ordered_json;

struct LogPiece {
  std::string bytes;
  std::uint64_t next_offset = 0;
  bool ended = false;
  std::uint64_t length = 0;   // bytes of the whole log that the coordinator knows
  std::string incarnation;    // the number of the instance that wrote the bytes
  std::string restored_from;  // the image that the instance was started from; empty: none
  double lost_ms = 0;         // the lost work since that image, in milliseconds
  std::string missing;        // unreachable nodes whose output was skipped
  std::uint64_t skipped = 0;  // bytes before `bytes` that were skipped because a node has deleted them
};

struct LogQuery {
  std::uint64_t offset = 0;
  std::chrono::milliseconds follow{0};
  bool timestamps = false;
  std::int64_t since_ms = 0;
  int rank = 0;
};

class CoordinatorClient {
 public:
  explicit CoordinatorClient(std::string home) : home_(std::move(home)) {}

  Result<Json> get(const std::string& path,
                   std::chrono::milliseconds timeout = std::chrono::milliseconds(90'000));
  // Reads a whole list, page by page. `name` is the list's field in the answers. A coordinator without pages
  // returns the list in one answer.
  Result<Json> get_all(const std::string& path, const char* name);
  // Sends a POST. The call ends with kTimedOut after the given number of interrupts, or after `timeout`; the
  // effect is then unknown. By default one interrupt does not end the call, because the command needs the
  // answer to decide what to do.
  Result<Json> post(const std::string& path, const Json& body, int interrupts = 2,
                    std::chrono::milliseconds timeout = std::chrono::milliseconds(90'000));
  Result<Json> remove(const std::string& path);  // sends a DELETE
  Result<LogPiece> logs(const std::string& job, const LogQuery& query);

  [[nodiscard]] HttpClient& http() noexcept { return http_; }
  [[nodiscard]] const std::string& home() const noexcept { return home_; }

 private:
  Result<HttpResponse> call(HttpRequest request);

  std::string home_;
  HttpClient http_;
  std::shared_ptr<tls::Identity> identity_;  // the identity of the last call
};

// Encodes a name or id as part of a path.
std::string path_part(const std::string& text);
// Returns whether the text has the form of an id of that kind: "m7" or "m7-k3fa". A name may have the same
// form.
[[nodiscard]] bool has_id_form(std::string_view text, char kind);

// These functions read a field of an answer, whatever its type is. text_of() returns a text for display, or
// "-" for a missing field. number_of() returns a number or the default.
std::string text_of(const Json& object, const char* field);
double number_of(const Json& object, const char* field, double otherwise = 0);
bool flag_of(const Json& object, const char* field);
bool has_value(const Json& object, const char* field);
const Json& member(const Json& object, const char* field);  // returns null if the field is missing

}  // namespace ckpt::cli
