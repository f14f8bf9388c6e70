// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::wire {

Result<MigrationPlan> decode_plan(std::span<const std::byte> bytes) {
  CKPT_TRY(plan, decode<MigrationPlan>(bytes));
  if (plan.fingerprint_key.size() != kFingerprintKeyBytes)
    return Error(ErrorCode::kProtocol, "The migration plan has a fingerprint key with the wrong length of " +
                                           std::to_string(plan.fingerprint_key.size()) + " bytes");
  if (plan.session_token.size() != kSessionTokenBytes)
    return Error(ErrorCode::kProtocol, "The migration plan has a session token with the wrong length of " +
                                           std::to_string(plan.session_token.size()) + " bytes");
  if (plan.spec.ranks.empty() || plan.spec.ranks.size() != plan.target_ranks.size())
    return Error(ErrorCode::kProtocol, "The migration plan has " + std::to_string(plan.spec.ranks.size()) +
                                           " ranks at the source and " +
                                           std::to_string(plan.target_ranks.size()) + " at the target");
  if (plan.spec.argv.empty()) return Error(ErrorCode::kProtocol, "The migration plan has no command");
  return std::move(plan);
}

}  // namespace ckpt::wire
