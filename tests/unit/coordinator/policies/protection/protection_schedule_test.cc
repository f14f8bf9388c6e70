// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/protection/protection_schedule.h"

#include <gtest/gtest.h>

#include <random>

namespace ckpt::coordinator {
namespace {

using Jobs = std::vector<wire::JobId>;
using Nodes = ProtectionSchedule::Nodes;

class ScheduleTest : public ::testing::Test {
 protected:
  Jobs due(std::int64_t now) {
    return schedule_.due(now, [this](wire::JobId job) -> std::optional<Nodes> {
      const auto at = nodes_.find(job);
      return at == nodes_.end() ? std::nullopt : std::optional(at->second);
    });
  }
  void take(wire::JobId job, std::int64_t begin, std::int64_t end, bool good = true) {
    schedule_.began(job, nodes_.at(job), begin);
    schedule_.ended(job, end, good);
  }
  ProtectionSchedule schedule_;
  // The jobs that could be saved now, with their nodes.
  std::map<wire::JobId, Nodes> nodes_{{1, {"a"}}, {2, {"a"}}, {3, {"b"}}};
};

TEST_F(ScheduleTest, FirstSnapshotIsDueImmediatelyAndTheNextAfterTheInterval) {
  schedule_.protect(1, 30'000, 0, 0);
  EXPECT_EQ(due(1'000'000), Jobs{1});
  take(1, 1'000'000, 1'002'000);
  EXPECT_TRUE(due(1'029'999).empty());
  EXPECT_EQ(schedule_.next_due(1'029'999), 1'030'000);
  EXPECT_EQ(due(1'030'000), Jobs{1});
}

TEST_F(ScheduleTest, JobRunsOneSnapshotAtATime) {
  schedule_.protect(1, 1'000, 0, 0);
  schedule_.began(1, {"a"}, 1'000'000);
  EXPECT_TRUE(due(2'000'000).empty());
  schedule_.ended(1, 2'000'000, true);
  EXPECT_EQ(due(2'000'000), Jobs{1});  // the snapshot took longer than the interval
  EXPECT_EQ(schedule_.due_of(1), 2'000'000);
}

TEST_F(ScheduleTest, JobsOfANodeAreSavedOneAfterAnother) {
  for (const wire::JobId job : {1, 2, 3}) schedule_.protect(job, 30'000, 0, 0);
  EXPECT_EQ(due(1'000'000), (Jobs{1, 3}));
  schedule_.began(1, {"a"}, 1'000'000);
  schedule_.began(3, {"b"}, 1'000'000);
  EXPECT_TRUE(due(1'000'100).empty());
  schedule_.ended(1, 1'000'200, true);
  EXPECT_EQ(due(1'000'200), Jobs{2});
}

TEST_F(ScheduleTest, JobOnSeveralNodesWaitsUntilAllItsNodesAreFree) {
  nodes_[4] = {"a", "b"};
  schedule_.protect(3, 30'000, 0, 0);
  schedule_.began(3, {"b"}, 1'000'000);
  schedule_.protect(4, 30'000, 0, 0);
  EXPECT_TRUE(due(1'000'100).empty());
  schedule_.ended(3, 1'000'200, true);
  EXPECT_EQ(due(1'000'200), Jobs{4});
  schedule_.began(4, nodes_[4], 1'000'200);
  schedule_.protect(1, 30'000, 0, 0);
  EXPECT_TRUE(due(1'000'300).empty());
}

TEST_F(ScheduleTest, JobThatWaitsForOneNodeIsNotOvertakenOnItsOtherNodes) {
  nodes_[4] = {"a", "b"};
  schedule_.protect(3, 30'000, 0, 0);
  schedule_.began(3, {"b"}, 1'000'000);
  schedule_.protect(4, 30'000, 1'000, 0);  // overdue longer than job 1
  schedule_.protect(1, 30'000, 2'000, 0);
  EXPECT_TRUE(due(1'000'100).empty());
  schedule_.ended(3, 1'000'200, true);
  EXPECT_EQ(due(1'000'200), Jobs{4});
}

TEST_F(ScheduleTest, LongestOverdueJobIsSavedFirst) {
  schedule_.protect(1, 30'000, 0, 0);
  schedule_.protect(2, 30'000, 0, 0);
  take(1, 1'005'000, 1'006'000);
  take(2, 1'000'000, 1'001'000);
  EXPECT_EQ(due(1'100'000), Jobs{2});
}

TEST_F(ScheduleTest, JobThatCannotBeSavedStaysDue) {
  schedule_.protect(1, 30'000, 0, 0);
  nodes_.erase(1);  // the job is moving
  EXPECT_TRUE(due(1'000'000).empty());
  EXPECT_EQ(schedule_.next_due(1'000'000), std::nullopt);  // no point in time makes the job due
  nodes_[1] = {"b"};
  EXPECT_EQ(due(1'000'001), Jobs{1});
}

TEST_F(ScheduleTest, FailuresIncreaseTheDelayAndASuccessResetsTheDelay) {
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

TEST_F(ScheduleTest, RetryDelayIsNeverShorterThanTheInterval) {
  schedule_.protect(1, 3'600'000, 0, 0);
  take(1, 1'000'000, 1'001'000, false);
  EXPECT_EQ(schedule_.due_of(1), 4'600'000);
}

TEST_F(ScheduleTest, StartOfTheLastSnapshotSurvivesARestart) {
  schedule_.protect(1, 30'000, 1'000'000, 0);
  EXPECT_TRUE(due(1'010'000).empty());
  EXPECT_EQ(due(1'030'000), Jobs{1});
}

TEST_F(ScheduleTest, AClockSetBackDelaysNoSnapshot) {
  schedule_.protect(1, 30'000, 5'000'000, 0);
  EXPECT_EQ(due(1'000'000), Jobs{1});
}

TEST_F(ScheduleTest, FailureCountSurvivesARestart) {
  schedule_.protect(1, 30'000, 1'000'000, 2);
  EXPECT_EQ(schedule_.due_of(1), 1'120'000);
}

TEST_F(ScheduleTest, NextDueTimeIsTheEarliestOfTheWaitingJobs) {
  schedule_.protect(1, 30'000, 1'000'000, 0);
  schedule_.protect(2, 60'000, 1'000'000, 0);
  schedule_.protect(3, 10'000, 1'000'000, 0);
  schedule_.began(3, {"b"}, 1'000'000);  // the schedule waits for the snapshot's end, not for a time
  EXPECT_EQ(schedule_.next_due(1'005'000), 1'030'000);
  EXPECT_EQ(schedule_.next_due(1'030'000), 1'060'000);
}

// Jobs of one node under protection, by a clock that jumps to the next time of the schedule. Each snapshot
// has its own duration, its barrier is at some point within it, and the snapshot counts once it has ended.
class ProtectedFor : public ScheduleTest {
 protected:
  struct Taken {
    std::int64_t begin = 0, barrier = 0, end = 0;
  };
  static constexpr std::int64_t kEvery = 30'000;
  void run(const Jobs& jobs, std::int64_t longest, std::size_t snapshots) {
    for (const wire::JobId job : jobs) {
      nodes_[job] = {"a"};
      schedule_.protect(job, kEvery, 0, 0);
    }
    std::int64_t now = 1'000'000;
    for (std::size_t i = 0; i < snapshots; ++i) {
      while (due(now).empty()) {
        const auto next = schedule_.next_due(now);
        ASSERT_TRUE(next && *next > now);
        now = *next;
      }
      const wire::JobId job = due(now).front();
      Taken one;
      one.begin = now;
      one.end = now + 1 + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(longest));
      one.barrier = now + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(one.end - now));
      schedule_.began(job, {"a"}, now);
      now = one.end;
      schedule_.ended(job, now, true);
      taken_[job].push_back(one);
    }
  }
  // Checks that the most work lost between two durable images of the job is within its limit. `others` is the
  // duration of the snapshots of other jobs for which it may have to wait.
  void expect_bounded(wire::JobId job, std::int64_t others) {
    const auto& all = taken_[job];
    ASSERT_GT(all.size(), 20u);
    for (std::size_t i = 1; i < all.size(); ++i) {
      // The job is lost a moment before the newer image counts.
      const std::int64_t lost = all[i].end - 1 - all[i - 1].barrier;
      const std::int64_t interval = std::max(kEvery, all[i - 1].end - all[i - 1].begin);
      EXPECT_LE(lost, interval + others + (all[i].end - all[i].begin))
          << "between images " << i - 1 << " and " << i;
    }
  }
  std::mt19937_64 random_{7};
  std::map<wire::JobId, std::vector<Taken>> taken_;
};

TEST_F(ProtectedFor, LossIsBoundedByAnIntervalAndOneSnapshot) {
  run({1}, kEvery, 200);
  expect_bounded(1, 0);
}

TEST_F(ProtectedFor, SnapshotsLongerThanTheIntervalRunBackToBack) {
  run({1}, 3 * kEvery, 200);
  expect_bounded(1, 0);
}

TEST_F(ProtectedFor, JobsOfANodeWaitAtMostOnceForEachOther) {
  constexpr std::int64_t kLongest = 8'000;
  run({1, 2, 3, 4}, kLongest, 400);
  for (const wire::JobId job : {1, 2, 3, 4}) expect_bounded(job, 3 * kLongest);
}

TEST_F(ScheduleTest, JobDroppedFromTheScheduleIsNeverDue) {
  schedule_.protect(1, 30'000, 0, 0);
  schedule_.drop(1);
  EXPECT_TRUE(due(1'000'000).empty());
}

TEST_F(ScheduleTest, RemovedJobsAreDroppedOnceTheirSnapshotsHaveEnded) {
  for (const wire::JobId job : {1, 2, 3}) schedule_.protect(job, 30'000, 0, 0);
  schedule_.began(2, {"a"}, 1'000'000);
  const auto is_third = [](wire::JobId job) { return job == 3; };
  schedule_.drop_removed(is_third);
  EXPECT_EQ(schedule_.due_of(1), std::nullopt);
  EXPECT_EQ(schedule_.due_of(2), 0) << "its snapshot still occupies the node";
  EXPECT_EQ(schedule_.due_of(3), 0);
  schedule_.ended(2, 1'001'000, true);
  schedule_.drop_removed(is_third);
  EXPECT_EQ(schedule_.due_of(2), std::nullopt);
  EXPECT_EQ(due(2'000'000), Jobs{3});
}

}  // namespace
}  // namespace ckpt::coordinator
