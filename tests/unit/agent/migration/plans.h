// SPDX-License-Identifier: Apache-2.0
// Plans of moves between node-a, which is the test's node, and node-b.
#pragma once

#include <string>

#include "libckpt/protocol/gang/gang_plan.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::agent {

// Returns the plan of a move of job 1, encoded. `folder` has no listener, so no peer is ever reached.
inline wire::Bytes plan_between(const std::string& source, const std::string& target,
                                const std::string& folder) {
  wire::MigrationPlan plan;
  plan.spec.job = 1;
  plan.spec.incarnation = 1;
  plan.spec.argv = {"program"};
  plan.spec.cwd = "/";
  plan.spec.ranks.emplace_back();
  plan.target_ranks.emplace_back();
  plan.source_node = source;
  plan.target_node = target;
  plan.source_peer_address = plan.target_peer_address = "unix:" + folder + "/nobody.sock";
  plan.peer_token = "secret";
  plan.fingerprint_key.resize(wire::kFingerprintKeyBytes);
  plan.session_token.resize(wire::kSessionTokenBytes);
  return wire::encode(plan);
}

// Returns the description of move 9 of gang 7, whose rank 0 moves as migration 21.
inline wire::GangInfo gang_move_between(const std::string& source, const std::string& target,
                                        const std::string& folder) {
  gang::GangPlan plan;
  gang::MovedRank& moved = plan.moved.emplace_back();
  moved.migration = 21;
  moved.base = 1;
  moved.plan = plan_between(source, target, folder);
  plan.epoch = 8;
  wire::GangInfo info;
  info.migration = 9;
  info.gang = 7;
  info.base = 1;
  info.moved = {0};
  info.plan = wire::encode(plan);
  return info;
}

}  // namespace ckpt::agent
