// SPDX-License-Identifier: Apache-2.0
#include "libckpt/wire/control_messages.h"

namespace ckpt::wire {

std::string_view to_string(JobPhase phase) noexcept {
  switch (phase) {
    case JobPhase::kInvalid:
      return "invalid";
    case JobPhase::kStarting:
      return "starting";
    case JobPhase::kRunning:
      return "running";
    case JobPhase::kStandby:
      return "standby";
    case JobPhase::kPaused:
      return "paused";
    case JobPhase::kExited:
      return "exited";
    case JobPhase::kMoved:
      return "moved";
  }
  return "unknown";
}

Error Reply::to_error() const {
  const auto code = static_cast<ErrorCode>(error_code);
  const bool known = code >= ErrorCode::kInvalidArgument && code <= ErrorCode::kInternal;
  return {known ? code : ErrorCode::kInternal, message};
}

Result<MigrationPlan> decode_plan(std::span<const std::byte> bytes) {
  CKPT_TRY(plan, decode<MigrationPlan>(bytes));
  if (plan.fingerprint_key.size() != kFingerprintKeyBytes)
    return Error(ErrorCode::kProtocol, "Migration plan with a fingerprint key of " +
                                           std::to_string(plan.fingerprint_key.size()) + " bytes");
  if (plan.session_token.size() != kSessionTokenBytes)
    return Error(ErrorCode::kProtocol, "Migration plan with a session token of " +
                                           std::to_string(plan.session_token.size()) + " bytes");
  if (plan.spec.ranks.empty() || plan.spec.ranks.size() != plan.target_ranks.size())
    return Error(ErrorCode::kProtocol, "Migration plan with " + std::to_string(plan.spec.ranks.size()) +
                                           " ranks at the source and " +
                                           std::to_string(plan.target_ranks.size()) + " at the target");
  if (plan.spec.argv.empty()) return Error(ErrorCode::kProtocol, "Migration plan without a command");
  return std::move(plan);
}

}  // namespace ckpt::wire
