// SPDX-License-Identifier: Apache-2.0
#include "coordinator/requests/api_answers.h"

#include <charconv>

#include "libckpt/base/program_error.h"

namespace ckpt::coordinator {

HttpResponse to_response(unsigned status, const json& body) {
  return {status, body.dump(-1, ' ', false, json::error_handler_t::replace)};
}

HttpResponse error_response(unsigned status, const char* code, const std::string& message, int exit_code) {
  return to_response(status, {{"error", {{"code", code}, {"message", message}, {"exit_code", exit_code}}}});
}

HttpResponse forbidden(const std::string& reason) {
  return error_response(403, "forbidden", reason, 5);
}

HttpResponse error_response(const Error& error) {
  const std::string text = error.to_string();
  if (const int status = program_status_of(error); status != 0)
    return error_response(409, "refused", text, status);
  switch (error.code()) {
    case ErrorCode::kInvalidArgument:
      return error_response(400, "usage", text, 64);
    case ErrorCode::kNotFound:
      return error_response(404, "not_found", text, 5);
    case ErrorCode::kRefused:
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kAborted:
      return error_response(409, "refused", text, 5);
    case ErrorCode::kNotSupported:
      return error_response(501, "refused", text, 5);
    case ErrorCode::kUnavailable:
    case ErrorCode::kTimedOut:
      return error_response(503, "unavailable", text, 5);
    case ErrorCode::kCorrupt:
    case ErrorCode::kProtocol:
    case ErrorCode::kDevice:
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      return error_response(500, "internal", text, 6);
  }
  return error_response(500, "internal", text, 6);
}

Result<std::int64_t> query_number(const HttpRequest& request, const char* key, std::int64_t fallback,
                                  std::int64_t max_value) {
  const auto at = request.query.find(key);
  if (at == request.query.end()) return fallback;
  std::int64_t value = 0;
  const char* end = at->second.data() + at->second.size();
  const auto [stop, failure] = std::from_chars(at->second.data(), end, value);
  if (failure != std::errc{} || stop != end || value < 0 || value > max_value)
    return Error(ErrorCode::kInvalidArgument, "Parameter \"" + std::string(key) +
                                                  "\" must be a whole number from 0 to " +
                                                  std::to_string(max_value));
  return value;
}

Result<Page> page_of(const HttpRequest& request) {
  Page page;
  CKPT_TRY(limit, query_number(request, "limit", 0, Page::kMaxLimit));
  page.limit = static_cast<std::size_t>(limit);
  if (const auto at = request.query.find("after"); at != request.query.end()) page.after = at->second;
  if (page.limit == 0 && !page.after.empty())
    return Error(ErrorCode::kInvalidArgument, "Parameter \"after\" requires a limit of at least 1");
  return page;
}

HttpResponse page_response(const Page& page, const char* name, json items, bool more) {
  if (page.limit == 0) return to_response(200, items);
  const json next = more && !items.empty() ? items.back().at("id") : json();
  return to_response(200, {{name, std::move(items)}, {"next", next}});
}

Error no_such_call(const HttpRequest& request) {
  std::string path;
  for (const std::string& piece : request.path) path += "/" + piece;
  return {ErrorCode::kInvalidArgument, "The API has no call " + request.method + " " + path};
}

}  // namespace ckpt::coordinator
