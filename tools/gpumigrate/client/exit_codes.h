// SPDX-License-Identifier: Apache-2.0
// The exit codes that scripts rely on, and the exit code of each error.
// Threads: pure functions.
#pragma once

#include "libckpt/base/error.h"
#include "libckpt/base/program_error.h"

namespace ckpt::cli {

enum ExitCode : int {
  kDone = 0,
  kFailed = 1,       // a failure; the job continues to run at the source
  kInterrupted = 2,  // timed out or interrupted; the job continues to run at the source
  kRestored = 3,     // restored from an image; work since the image is lost
  kLost = 4,         // the job was lost
  kRefused = 5,      // a refusal; nothing was changed
  kUnknown = 6,      // contact was lost, and the outcome is unknown
  kUsage = 64,
  kTimedOutWaiting = 124,  // --timeout has passed; timeout(1) uses the same code
  kRunFailed = 125,        // `run`: gpumigrate failed, not the job; 126 and 127: libckpt/base/program_error.h
};

[[nodiscard]] constexpr int exit_code_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return kUsage;
    case ErrorCode::kAborted:
      return kInterrupted;
    // The request may have had an effect. Contact was lost after the request was sent, or the answer is
    // invalid.
    case ErrorCode::kTimedOut:
    case ErrorCode::kCorrupt:
    case ErrorCode::kProtocol:
    case ErrorCode::kInternal:
      return kUnknown;
    default:
      return kRefused;
  }
}

[[nodiscard]] inline int exit_code_of(const Error& error) noexcept {
  const int status = program_status_of(error);
  return status != 0 ? status : exit_code_of(error.code());
}

}  // namespace ckpt::cli
