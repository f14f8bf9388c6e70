// SPDX-License-Identifier: Apache-2.0
// The error of a program that cannot be started, with the exit status that shells report for it. It is an
// Error of code kRefused without a domain. Its native code is the status.
// Threads: pure functions.
#pragma once

#include "libckpt/base/error.h"

namespace ckpt {

inline constexpr int kProgramNotFound = 127;
inline constexpr int kProgramNotExecutable = 126;

[[nodiscard]] constexpr bool is_program_status(std::int64_t status) noexcept {
  return status == kProgramNotFound || status == kProgramNotExecutable;
}

// Creates the error. `status` is kProgramNotFound or kProgramNotExecutable.
inline Error program_error(std::int64_t status, std::string message) {
  return {ErrorCode::kRefused, ErrorDomain::kNone, status, std::move(message)};
}

// Returns the exit status in an error of program_error(), or 0 for any other error.
[[nodiscard]] inline int program_status_of(const Error& error) noexcept {
  const bool is_one = error.code() == ErrorCode::kRefused && error.domain() == ErrorDomain::kNone &&
                      is_program_status(error.native());
  return is_one ? static_cast<int>(error.native()) : 0;
}

}  // namespace ckpt
