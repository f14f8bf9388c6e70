// SPDX-License-Identifier: Apache-2.0
#include "coordinator/migration/move_limit.h"

#include <gtest/gtest.h>

namespace ckpt::coordinator {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kGrace{3'000};

Migration move_with_limit(std::int64_t timeout_ms) {
  Migration move;
  move.started_ms = 1'000'000;
  move.timeout_ms = timeout_ms;
  return move;
}

// A timer that is armed again, after a restart of the coordinator, runs only for the rest of the limit.
TEST(MoveLimit, TimerRunsForTheRemainderOfTheLimit) {
  const Migration move = move_with_limit(60'000);
  EXPECT_EQ(left_of_limit(move, 1'000'000, kGrace), milliseconds(60'000));
  EXPECT_EQ(left_of_limit(move, 1'050'000, kGrace), milliseconds(10'000));
  EXPECT_EQ(left_of_limit(move, 900'000, kGrace), milliseconds(60'000)) << "the clock was set back";
}

TEST(MoveLimit, NodesOfALateMoveGetAShortTimeToAnswer) {
  EXPECT_EQ(left_of_limit(move_with_limit(60'000), 1'060'000, kGrace), kGrace);
  EXPECT_EQ(left_of_limit(move_with_limit(60'000), 2'000'000, kGrace), kGrace);
  EXPECT_EQ(left_of_limit(move_with_limit(1), 1'000'500, kGrace), milliseconds(1));
}

}  // namespace
}  // namespace ckpt::coordinator
