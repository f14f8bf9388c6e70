// SPDX-License-Identifier: Apache-2.0
// Tests the coordinator of a move of ranks that is restored from its newest record.
#include "libckpt/protocol/gang/gang_coordinator.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ckpt::gang {
namespace {

constexpr Nanos kNow = 1'000'000'000;

// Returns a move of which ranks 0 and 2 move, and rank 1 stays.
GangInfo move_of_ranks() {
  GangInfo info;
  info.migration = 7;
  info.gang = 3;
  info.base = 1;
  info.moved = {0, 2};
  info.staying = {1};
  return info;
}

template <class What>
bool has(const std::vector<Action>& actions) {
  return std::any_of(actions.begin(), actions.end(),
                     [](const Action& action) { return std::holds_alternative<What>(action); });
}

// Returns whether a message with this body is sent to the party.
template <class What>
bool sends(const std::vector<Action>& actions, const Party& to) {
  return std::any_of(actions.begin(), actions.end(), [&to](const Action& action) {
    const auto* sent = std::get_if<Send>(&action);
    return sent != nullptr && sent->to == to && std::holds_alternative<What>(sent->body);
  });
}

Step<CoordinatorState, Action> restarted(const Record& record) {
  return step(restore_coordinator(record).value(), Restarted{}, kNow, Timing()).value();
}

TEST(GangCoordinatorRecord, AbandonedMoveStaysAbandonedAfterARestart) {
  Record record(move_of_ranks(), Party(), RecordKind::kGranted, 2);
  record.reason = Reason(ErrorCode::kAborted, "asked for");
  const auto made = restarted(record);
  ASSERT_TRUE(made.state.abort);
  EXPECT_EQ(made.state.abort->text, "asked for");
  EXPECT_FALSE(has<GatherRanks>(made.actions));
  for (const Party& party : record.info.ranks()) {
    EXPECT_FALSE(sends<Granted>(made.actions, party)) << to_text(party);
    EXPECT_TRUE(sends<GiveUp>(made.actions, party)) << to_text(party);
  }
}

TEST(GangCoordinatorRecord, MoveWithoutAnAbortContinuesAfterARestart) {
  const Record record(move_of_ranks(), Party(), RecordKind::kGranted, 2);
  const auto made = restarted(record);
  EXPECT_FALSE(made.state.abort);
  EXPECT_TRUE(has<GatherRanks>(made.actions));
}

// A coordinator that lost its record gives the move up. Its successor knows that from the new record.
TEST(GangCoordinatorRecord, MoveWithALostRecordIsAbandonedAfterEachRestart) {
  CoordinatorState state = recover_coordinator(move_of_ranks(), kNow);
  std::vector<Action> actions;
  for (const Party& party : state.info.ranks()) {
    auto made = step(state, PartyAnswered(party), kNow, Timing()).value();
    state = std::move(made.state);
    actions.insert(actions.end(), made.actions.begin(), made.actions.end());
  }
  const auto written = std::find_if(actions.begin(), actions.end(), [](const Action& action) {
    return std::holds_alternative<WriteRecord>(action);
  });
  ASSERT_NE(written, actions.end());
  const Record& record = std::get<WriteRecord>(*written).record;
  EXPECT_EQ(name_of(record), "GRANTED(n+1)");
  EXPECT_TRUE(restarted(record).state.abort);
}

}  // namespace
}  // namespace ckpt::gang
