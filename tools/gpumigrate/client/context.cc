// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/context.h"

#include "tools/gpumigrate/client/table.h"

namespace ckpt::cli {

void Context::note(const std::string& line) {
  err << "gpumigrate: " << printable(line) << "\n" << std::flush;
}

void Context::print(const Json& value) {
  out << value.dump(2, ' ', false, Json::error_handler_t::replace) << "\n" << std::flush;
}

int report(Context& context, const Error& error) {
  context.note(error.to_string());
  return exit_code_of(error);
}

int report_unfollowed(Context& context, const Error& error) {
  const int code = report(context, error);
  return error.code() == ErrorCode::kAborted ? kUnknown : code;
}

}  // namespace ckpt::cli
