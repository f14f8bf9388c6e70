// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/coordinator_client.h"

#include <charconv>

#include "libckpt/base/program_error.h"
#include "tools/gpumigrate/client/access.h"

namespace ckpt::cli {
namespace {

template <typename T>
bool parse_number(std::string_view text, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

ErrorCode code_of(const std::string& code, int exit_code) {
  if (code == "usage" || code == "unauthorized") return ErrorCode::kInvalidArgument;
  if (code == "not_found") return ErrorCode::kNotFound;
  if (code == "unavailable") return ErrorCode::kUnavailable;
  if (code == "refused") return ErrorCode::kRefused;
  return exit_code == 5 ? ErrorCode::kRefused : ErrorCode::kInternal;
}

Error error_of(const HttpResponse& response) {
  const Json answer = Json::parse(response.body, nullptr, false);
  const Json& error = member(answer, "error");
  if (!error.is_object()) {
    return Error(ErrorCode::kProtocol, "The coordinator answered with HTTP status " +
                                           std::to_string(response.status) + " and no error message");
  }
  const int exit_code = static_cast<int>(number_of(error, "exit_code"));
  if (is_program_status(exit_code)) return program_error(exit_code, text_of(error, "message"));
  return Error(code_of(text_of(error, "code"), exit_code), text_of(error, "message"));
}

Result<Json> json_of(Result<HttpResponse> response) {
  if (!response) return std::move(response).error();
  Json answer = Json::parse(response->body, nullptr, false);
  if (answer.is_discarded()) return Error(ErrorCode::kProtocol, "The coordinator's answer is not JSON");
  return answer;
}

}  // namespace

Result<HttpResponse> CoordinatorClient::call(HttpRequest request) {
  CKPT_TRY(access, find_access(home_));
  request.socket = std::move(access.socket);
  request.host = std::move(access.host);
  request.port = access.port;
  request.token = std::move(access.token);
  if (request.socket.empty()) {
    if (!identity_ || identity_->files() != access.files) {
      CKPT_TRY(identity, tls::Identity::load(std::move(access.files)));
      identity_ = std::move(identity);
    }
    request.identity = identity_;
  }
  CKPT_TRY(response, http_.send(request));
  if (response.status >= 400) return error_of(response);
  return std::move(response);
}

Result<Json> CoordinatorClient::get(const std::string& path, std::chrono::milliseconds timeout) {
  HttpRequest request;
  request.target = path;
  request.timeout = timeout;
  return json_of(call(std::move(request)));
}

Result<Json> CoordinatorClient::get_all(const std::string& path, const char* name) {
  constexpr const char* kLimit = "?limit=500";
  Json all = Json::array();
  std::string after;
  while (true) {
    CKPT_TRY(page, get(path + kLimit + (after.empty() ? "" : "&after=" + path_part(after))));
    if (page.is_array()) return std::move(page);
    for (const Json& item : member(page, name)) all.push_back(item);
    if (!has_value(page, "next")) return all;
    std::string next = text_of(page, "next");
    if (next == after)
      return Error(ErrorCode::kProtocol, "The coordinator sent the same page of " + path + " twice");
    after = std::move(next);
  }
}

Result<Json> CoordinatorClient::post(const std::string& path, const Json& body, int interrupts,
                                     std::chrono::milliseconds timeout) {
  HttpRequest request;
  request.method = "POST";
  request.target = path;
  request.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  request.interrupts = interrupts;
  request.timeout = timeout;
  auto answer = json_of(call(std::move(request)));
  if (!answer && answer.error().code() == ErrorCode::kAborted)
    return Error(ErrorCode::kTimedOut, http_.is_over_time()
                                           ? "The coordinator did not answer within the time limit"
                                           : "Interrupted before the coordinator answered");
  return answer;
}

Result<Json> CoordinatorClient::remove(const std::string& path) {
  HttpRequest request;
  request.method = "DELETE";
  request.target = path;
  return json_of(call(std::move(request)));
}

Result<LogPiece> CoordinatorClient::logs(const std::string& job, const LogQuery& query) {
  HttpRequest request;
  request.target = "/v1/jobs/" + path_part(job) + "/logs?offset=" + std::to_string(query.offset) +
                   "&limit=262144&follow_ms=" + std::to_string(query.follow.count());
  if (query.timestamps) request.target += "&timestamps=1";
  if (query.since_ms > 0) request.target += "&since_ms=" + std::to_string(query.since_ms);
  if (query.rank > 0) request.target += "&rank=" + std::to_string(query.rank);
  CKPT_TRY(response, call(std::move(request)));
  LogPiece piece;
  piece.ended = response.log.ended;
  if (!parse_number(response.log.next_offset, piece.next_offset)) {
    return Error(ErrorCode::kProtocol, "The coordinator's answer lacks the header X-Next-Offset");
  }
  // Missing headers are not an error, because a coordinator of an earlier version sends none of them.
  (void)parse_number(response.log.length, piece.length);
  (void)parse_number(response.log.lost_ms, piece.lost_ms);
  (void)parse_number(response.log.skipped, piece.skipped);
  piece.incarnation = std::move(response.log.incarnation);
  piece.restored_from = std::move(response.log.restored_from);
  piece.missing = std::move(response.log.missing);
  piece.bytes = std::move(response.body);
  return piece;
}

std::string path_part(const std::string& text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~';
    if (plain) {
      out += c;
    } else {
      out += '%';
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  return out;
}

const Json& member(const Json& object, const char* field) {
  static const Json null;
  if (!object.is_object()) return null;
  const auto found = object.find(field);
  return found == object.end() ? null : *found;
}

bool has_id_form(std::string_view text, char kind) {
  std::size_t end = 1;
  while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
  return text.starts_with(kind) && end > 1 && (end == text.size() || text[end] == '-');
}

std::string text_of(const Json& object, const char* field) {
  const Json& value = member(object, field);
  if (value.is_null()) return "-";
  if (value.is_string()) return value.get<std::string>();
  return value.dump();
}

double number_of(const Json& object, const char* field, double otherwise) {
  const Json& value = member(object, field);
  return value.is_number() ? value.get<double>() : otherwise;
}

bool flag_of(const Json& object, const char* field) {
  const Json& value = member(object, field);
  return value.is_boolean() && value.get<bool>();
}

bool has_value(const Json& object, const char* field) {
  return !member(object, field).is_null();
}

}  // namespace ckpt::cli
