// SPDX-License-Identifier: Apache-2.0
// The exit codes that scripts rely on, and which of them an error gets. Pure.
#pragma once

#include "libckpt/base/error.h"
#include "libckpt/base/program_error.h"

namespace ckpt::cli {

enum ExitCode : int {
  kDone = 0,
  kFailed = 1,       // the job runs on at the source
  kInterrupted = 2,  // timed out or interrupted; the job runs on at the source
  kRestored = 3,     // from an image; work since then is lost
  kLost = 4,         // the job is lost
  kRefused = 5,      // nothing was touched
  kUnknown = 6,      // contact lost, the outcome is not known
  kUsage = 64,
  kTimedOutWaiting = 124,  // the limit of a --timeout, as of timeout(1)
  kRunFailed = 125,  // `run`: not the job failed, but gpumigrate; 126 and 127: libckpt/base/program_error.h
};

[[nodiscard]] constexpr int exit_code_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return kUsage;
    case ErrorCode::kAborted:
      return kInterrupted;
    // The request had left when contact was lost, or the answer makes no sense: it may have had an effect.
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
