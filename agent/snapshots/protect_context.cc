// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshots/protect_context.h"

#include <algorithm>

#include "libckpt/base/clock.h"
#include "libckpt/base/random.h"

namespace ckpt::agent::protect {

wire::MigrationId next_restore_number() {
  static std::uint64_t last = 0;  // of the event loop
  last = std::max<std::uint64_t>(last + 1, static_cast<std::uint64_t>(wall_clock_ms()));
  return kSnapshotNumber | last;
}

mover::SessionKey next_session_key() {
  static std::uint64_t last = 0;  // of the event loop
  return {++last, mover::kVaultRank};
}

Result<wire::MigrationPlan> plan_for(const wire::JobSpec& spec, const std::string& source_node,
                                     const std::string& target_node) {
  wire::MigrationPlan plan;
  plan.spec = spec;
  plan.target_ranks = spec.ranks;
  plan.source_node = source_node;
  plan.target_node = target_node;
  plan.fingerprint_key.resize(wire::kFingerprintKeyBytes);
  plan.session_token.resize(wire::kSessionTokenBytes);
  CKPT_TRYV(fill_random(plan.fingerprint_key));
  CKPT_TRYV(fill_random(plan.session_token));
  return plan;
}

}  // namespace ckpt::agent::protect
