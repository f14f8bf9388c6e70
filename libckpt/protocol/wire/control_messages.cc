// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/wire/control_messages.h"

namespace ckpt::wire {

Error Reply::to_error() const {
  const auto code = static_cast<ErrorCode>(error_code);
  const bool known = code >= ErrorCode::kInvalidArgument && code <= ErrorCode::kInternal;
  return {known ? code : ErrorCode::kInternal, message};
}

}  // namespace ckpt::wire
