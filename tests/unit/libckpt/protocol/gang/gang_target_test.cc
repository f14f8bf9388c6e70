// SPDX-License-Identifier: Apache-2.0
// Tests the lead of a move of ranks that receives statements of parties outside the move.
#include "libckpt/protocol/gang/gang_target.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ckpt::gang {
namespace {

constexpr Nanos kNow = 1'000'000'000;

// Returns the state of a lead: ranks 0 and 2 move, and rank 1 stays. The lead has verified its memory and has
// a lease.
TargetState lead() {
  TargetState state;
  state.info.migration = 7;
  state.info.gang = 3;
  state.info.base = 1;
  state.info.moved = {0, 2};
  state.info.staying = {1};
  state.phase = target::Verified{};
  state.granted = true;
  state.lease.k = 2;
  state.lease.deadline = kNow + 3600 * kNanosPerMs * 1000;
  return state;
}

template <class Body>
TargetState after(const TargetState& state, const Party& from, const Body& body) {
  auto made = step(state, Message(from, body), kNow, Timing());
  return made ? made->state : state;
}

TEST(GangLead, LeadCountsOnlyMessagesOfParticipatingRanks) {
  TargetState state = lead();
  for (const std::uint32_t stranger : {0U, 1U, 9U})
    state = after(state, Party(Role::kTarget, stranger), Ready(2));
  for (const std::uint32_t stranger : {0U, 2U, 9U})
    state = after(state, Party(Role::kBystander, stranger), Held{});
  EXPECT_TRUE(state.ready.empty());
  EXPECT_TRUE(state.held.empty());
  EXPECT_TRUE(std::holds_alternative<target::Verified>(state.phase));

  state = after(state, Party(Role::kTarget, 2), Ready(2));
  EXPECT_TRUE(std::holds_alternative<target::Verified>(state.phase));
  state = after(state, Party(Role::kBystander, 1), Held{});
  EXPECT_TRUE(std::holds_alternative<target::Promised>(state.phase));
  state = after(state, Party(Role::kTarget, 9), InGate(2));
  EXPECT_TRUE(state.gates.empty());
}

}  // namespace
}  // namespace ckpt::gang
