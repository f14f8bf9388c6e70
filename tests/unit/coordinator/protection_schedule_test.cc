// SPDX-License-Identifier: Apache-2.0
#include "coordinator/protection_schedule.h"

#include <gtest/gtest.h>

namespace ckpt::coordinator {
namespace {

using Jobs = std::vector<wire::JobId>;

class ScheduleTest : public ::testing::Test {
 protected:
  Jobs due(std::int64_t now) {
    return schedule_.due(now, [this](wire::JobId job) -> std::optional<std::string> {
      const auto at = nodes_.find(job);
      return at == nodes_.end() ? std::nullopt : std::optional(at->second);
    });
  }
  void take(wire::JobId job, std::int64_t begin, std::int64_t end, bool good = true) {
    schedule_.began(job, nodes_.at(job), begin);
    schedule_.ended(job, end, good);
  }
  ProtectionSchedule schedule_;
  std::map<wire::JobId, std::string> nodes_{{1, "a"}, {2, "a"}, {3, "b"}};  // those that could have one now
};

TEST_F(ScheduleTest, TheFirstIsDueAtOnceAndTheNextByTheInterval) {
  schedule_.protect(1, 30'000, 0, 0);
  EXPECT_EQ(due(1'000'000), Jobs{1});
  take(1, 1'000'000, 1'002'000);
  EXPECT_TRUE(due(1'029'999).empty());
  EXPECT_EQ(schedule_.next_due(1'029'999), 1'030'000);
  EXPECT_EQ(due(1'030'000), Jobs{1});
}

TEST_F(ScheduleTest, NeverTwoOfAJobAtOnce) {
  schedule_.protect(1, 1'000, 0, 0);
  schedule_.began(1, "a", 1'000'000);
  EXPECT_TRUE(due(2'000'000).empty());
  schedule_.ended(1, 2'000'000, true);
  EXPECT_EQ(due(2'000'000), Jobs{1});  // it took longer than the interval
  EXPECT_EQ(schedule_.due_of(1), 2'000'000);
}

TEST_F(ScheduleTest, JobsOfANodeFollowOneAnother) {
  for (const wire::JobId job : {1, 2, 3}) schedule_.protect(job, 30'000, 0, 0);
  EXPECT_EQ(due(1'000'000), (Jobs{1, 3}));
  schedule_.began(1, "a", 1'000'000);
  schedule_.began(3, "b", 1'000'000);
  EXPECT_TRUE(due(1'000'100).empty());
  schedule_.ended(1, 1'000'200, true);
  EXPECT_EQ(due(1'000'200), Jobs{2});
}

TEST_F(ScheduleTest, TheLongestOverdueGoesFirst) {
  schedule_.protect(1, 30'000, 0, 0);
  schedule_.protect(2, 30'000, 0, 0);
  take(1, 1'005'000, 1'006'000);
  take(2, 1'000'000, 1'001'000);
  EXPECT_EQ(due(1'100'000), Jobs{2});
}

TEST_F(ScheduleTest, AJobThatCannotHaveOneKeepsItsTurn) {
  schedule_.protect(1, 30'000, 0, 0);
  nodes_.erase(1);  // it moves
  EXPECT_TRUE(due(1'000'000).empty());
  EXPECT_EQ(schedule_.next_due(1'000'000), std::nullopt);  // no time will help
  nodes_[1] = "b";
  EXPECT_EQ(due(1'000'001), Jobs{1});
}

TEST_F(ScheduleTest, FailuresBackOffAndSuccessForgets) {
  schedule_.protect(1, 30'000, 0, 0);
  take(1, 1'000'000, 1'001'000, false);
  EXPECT_EQ(schedule_.due_of(1), 1'060'000);
  take(1, 1'060'000, 1'061'000, false);
  EXPECT_EQ(schedule_.due_of(1), 1'180'000);
  for (int i = 0; i < 50; ++i) take(1, 2'000'000, 2'001'000, false);
  EXPECT_EQ(schedule_.due_of(1), 2'000'000 + ProtectionSchedule::kLongestBackoffMs);
  take(1, 3'000'000, 3'001'000);
  EXPECT_EQ(schedule_.due_of(1), 3'030'000);
}

TEST_F(ScheduleTest, TheBackoffNeverBeginsEarlierThanTheInterval) {
  schedule_.protect(1, 3'600'000, 0, 0);
  take(1, 1'000'000, 1'001'000, false);
  EXPECT_EQ(schedule_.due_of(1), 4'600'000);
}

TEST_F(ScheduleTest, ARestartKnowsWhenTheLastOneBegan) {
  schedule_.protect(1, 30'000, 1'000'000, 0);
  EXPECT_TRUE(due(1'010'000).empty());
  EXPECT_EQ(due(1'030'000), Jobs{1});
}

TEST_F(ScheduleTest, AClockThatWasSetBackDelaysNothing) {
  schedule_.protect(1, 30'000, 5'000'000, 0);
  EXPECT_EQ(due(1'000'000), Jobs{1});
}

TEST_F(ScheduleTest, ARestartKnowsTheFailures) {
  schedule_.protect(1, 30'000, 1'000'000, 2);
  EXPECT_EQ(schedule_.due_of(1), 1'120'000);
}

TEST_F(ScheduleTest, TheNextIsTheFirstOfThoseThatWaitForTheirTime) {
  schedule_.protect(1, 30'000, 1'000'000, 0);
  schedule_.protect(2, 60'000, 1'000'000, 0);
  schedule_.protect(3, 10'000, 1'000'000, 0);
  schedule_.began(3, "b", 1'000'000);  // it waits for its end, not for a time
  EXPECT_EQ(schedule_.next_due(1'005'000), 1'030'000);
  EXPECT_EQ(schedule_.next_due(1'030'000), 1'060'000);
}

TEST_F(ScheduleTest, WhatIsDroppedIsNotDue) {
  schedule_.protect(1, 30'000, 0, 0);
  schedule_.drop(1);
  EXPECT_TRUE(due(1'000'000).empty());
}

}  // namespace
}  // namespace ckpt::coordinator
