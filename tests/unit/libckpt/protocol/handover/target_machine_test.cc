// SPDX-License-Identifier: Apache-2.0
// Tests the target of a handover step by step, in cases that no exploration of worlds reaches: late or forged
// messages.
#include "libckpt/protocol/handover/target_machine.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ckpt::migration {
namespace {

constexpr Incarnation kFirst = 2;
constexpr Nanos kNow = 1'000'000'000;

template <class Action>
bool has(const std::vector<migration::Action>& actions) {
  return std::any_of(actions.begin(), actions.end(),
                     [](const auto& action) { return std::holds_alternative<Action>(action); });
}

// Returns the state of a target that has committed and whose program has finished before the source has
// released.
TargetState finished() {
  TargetState state;
  state.info.base = kFirst - 1;
  state.offered = kFirst;
  state.phase = target::Committed{.k = kFirst, .running = true, .dead = true};
  return state;
}

TEST(TargetMachine, FinishedProgramIsNotRunAgainByALaterGrant) {
  const Timing timing;
  const auto offered = step(finished(), Message(Role::kCoordinator, wire::Commit(kFirst + 1)), kNow, timing);
  ASSERT_TRUE(offered.has_value());
  TargetState asked = offered->state;
  asked.offered = kFirst + 1;
  asked.lease.k = kFirst + 1;
  asked.lease.asked = {kNow};
  wire::Lease lease;
  lease.k = kFirst + 1;
  lease.sent_at_ns = kNow;
  lease.term_ms = 60'000;
  const auto lent = step(asked, Message(Role::kCoordinator, lease), kNow, timing);
  ASSERT_TRUE(lent.has_value());
  EXPECT_FALSE(has<RunInstance>(offered->actions));
  EXPECT_FALSE(has<RunInstance>(lent->actions));
  EXPECT_FALSE(has<WriteRecord>(lent->actions));
  EXPECT_EQ(std::get<target::Committed>(lent->state.phase).k, kFirst);
}

}  // namespace
}  // namespace ckpt::migration
