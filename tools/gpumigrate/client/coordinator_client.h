// SPDX-License-Identifier: Apache-2.0
// The coordinator's API (docs/api.md) as calls that return JSON. Where it listens (access.h) is read again for every
// call, since a coordinator that was started again may listen elsewhere.
// Threads: one. Errors: those of HttpClient, and the coordinator's own refusals with its own line.
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
  std::uint64_t length = 0;   // of the whole log, as far as the coordinator knows
  std::string incarnation;    // of the instance that wrote the bytes
  std::string restored_from;  // the image that it was started from; empty: none
  double lost_ms = 0;         // of work since that image
  std::string missing;        // nodes that are away, of whose part something was passed over
  std::uint64_t skipped = 0;  // bytes before these that a node has freed
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
  // All of a list, page by page; `name` is its field in the answers. A coordinator that knows no pages
  // answers with the whole list.
  Result<Json> get_all(const std::string& path, const char* name);
  // One interrupt does not end it, since what was asked for should be known before anything else is decided;
  // so many do, and then, as after `timeout`, it is kTimedOut: the effect is not known.
  Result<Json> post(const std::string& path, const Json& body, int interrupts = 2,
                    std::chrono::milliseconds timeout = std::chrono::milliseconds(90'000));
  Result<Json> remove(const std::string& path);  // DELETE
  Result<LogPiece> logs(const std::string& job, const LogQuery& query);

  [[nodiscard]] HttpClient& http() noexcept { return http_; }
  [[nodiscard]] const std::string& home() const noexcept { return home_; }

 private:
  Result<HttpResponse> call(HttpRequest request);

  std::string home_;
  HttpClient http_;
  std::shared_ptr<tls::Identity> identity_;  // of the last call
};

// A name or id as part of a path.
std::string path_part(const std::string& text);
// Whether it has the form of an id of that kind: "m7" or "m7-k3fa". A name may have it, too.
[[nodiscard]] bool has_id_form(std::string_view text, char kind);

// Fields of an answer, whatever they turn out to be: text for people ("-" for null or missing), a number or a
// default.
std::string text_of(const Json& object, const char* field);
double number_of(const Json& object, const char* field, double otherwise = 0);
bool flag_of(const Json& object, const char* field);
bool has_value(const Json& object, const char* field);
const Json& member(const Json& object, const char* field);  // null if missing

}  // namespace ckpt::cli
