// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/context.h"

#include "tools/gpumigrate/client/table.h"

namespace ckpt::cli {
namespace {

// Returns the error code's name in docs/api.md.
const char* code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "usage";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kAborted:
      return "interrupted";
    case ErrorCode::kIo:
      return "io";
    default:
      return exit_code_of(code) == kUnknown ? "internal" : "refused";
  }
}

}  // namespace

void Context::note(const std::string& line) {
  err << "gpumigrate: " << printable(line) << "\n" << std::flush;
}

Layout Context::layout() const {
  return {.width = screen.terminal ? screen.size().columns : kUnlimited,
          .wide = wide,
          .colour = screen.colour,
          .now_ms = now_ms()};
}

void Context::print(const Json& value) {
  out << value.dump(2, ' ', false, Json::error_handler_t::replace) << "\n" << std::flush;
}

int report(Context& context, const Error& error) {
  return report(context, error, exit_code_of(error));
}

int report(Context& context, const Error& error, int exit_code) {
  if (!context.json) {
    context.note(error.to_string());
    return exit_code;
  }
  const Json line = {
      {"error",
       {{"code", code_name(error.code())}, {"message", error.to_string()}, {"exit_code", exit_code}}}};
  context.err << line.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n" << std::flush;
  return exit_code;
}

int report_unfollowed(Context& context, const Error& error) {
  const int code = report(context, error);
  return error.code() == ErrorCode::kAborted ? kUnknown : code;
}

}  // namespace ckpt::cli
