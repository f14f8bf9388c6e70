// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/wire/control_messages.h"

#include "libckpt/base/program_error.h"

namespace ckpt::wire {

void Reply::set_error(const Error& error) {
  ok = false;
  error_code = static_cast<std::uint8_t>(error.code());
  message = error.to_string();
  program_status = static_cast<std::uint8_t>(program_status_of(error));
}

Error Reply::to_error() const {
  const auto code = static_cast<ErrorCode>(error_code);
  const bool known = code >= ErrorCode::kInvalidArgument && code <= ErrorCode::kInternal;
  if (code == ErrorCode::kRefused && is_program_status(program_status))
    return program_error(program_status, message);
  return {known ? code : ErrorCode::kInternal, message};
}

}  // namespace ckpt::wire
