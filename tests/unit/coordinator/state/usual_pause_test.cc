// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/usual_pause.h"

#include <gtest/gtest.h>

namespace ckpt::coordinator {
namespace {

using wire::PauseKind;
using wire::PauseTerm;

wire::PauseFacts pause_of(std::int64_t dump, std::int64_t restore, PauseKind kind = PauseKind::kProcess) {
  wire::PauseFacts pause;
  pause.kind = kind;
  pause.ns[PauseTerm::kDump] = dump;
  pause.ns[PauseTerm::kHostRestore] = restore;
  pause.bytes[PauseTerm::kDump] = dump * 10;
  return pause;
}

std::vector<wire::PauseFacts> after(const std::vector<wire::PauseFacts>& pauses) {
  std::vector<wire::PauseFacts> kept;
  for (const wire::PauseFacts& pause : pauses) add_pause(kept, pause);
  return kept;
}

TEST(UsualPause, JobThatNeverMovedHasNoUsualPause) {
  EXPECT_FALSE(usual_pause({}));
}

TEST(UsualPause, OutlierPauseIsNotPredicted) {
  const auto usual = usual_pause(after({pause_of(10, 100), pause_of(12, 900), pause_of(40, 110)}));
  ASSERT_TRUE(usual);
  EXPECT_EQ(usual->ns[PauseTerm::kDump], 12) << "each term by itself";
  EXPECT_EQ(usual->bytes[PauseTerm::kDump], 120) << "with the bytes of that pause";
  EXPECT_EQ(usual->ns[PauseTerm::kHostRestore], 110);
}

TEST(UsualPause, LongerPausesArePredictedAfterTwoOfThreeAreLonger) {
  EXPECT_EQ(usual_pause(after({pause_of(10, 1), pause_of(50, 1)}))->ns[PauseTerm::kDump], 10);
  EXPECT_EQ(usual_pause(after({pause_of(10, 1), pause_of(50, 1), pause_of(50, 1)}))->ns[PauseTerm::kDump],
            50);
}

TEST(UsualPause, OnlyPausesOfTheMostRecentKindAreUsed) {
  const auto usual =
      usual_pause(after({pause_of(10, 1), pause_of(11, 1), pause_of(70, 1, PauseKind::kSwap)}));
  EXPECT_EQ(usual->kind, PauseKind::kSwap);
  EXPECT_EQ(usual->ns[PauseTerm::kDump], 70);
}

TEST(UsualPause, OldestPausesAreDropped) {
  const auto pauses = after({pause_of(1, 1), pause_of(2, 1), pause_of(3, 1), pause_of(4, 1), pause_of(5, 1)});
  ASSERT_EQ(pauses.size(), kMaxPauses);
  EXPECT_EQ(pauses.front().ns[PauseTerm::kDump], 3);
}

}  // namespace
}  // namespace ckpt::coordinator
