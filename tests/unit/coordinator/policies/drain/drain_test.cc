// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/drain/drain.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "libckpt/record/document.h"

namespace ckpt::coordinator {
namespace {

DrainJob job(JobId id, std::int32_t priority, std::uint64_t bytes) {
  DrainJob j;
  j.job = id;
  j.priority = priority;
  j.state_bytes = bytes;
  return j;
}

Drain with(std::vector<DrainJobState> states) {
  Drain drain;
  for (const DrainJobState state : states) {
    DrainJob& j = drain.jobs.emplace_back();
    j.job = drain.jobs.size();
    j.state = state;
  }
  return drain;
}

TEST(DrainRules, JobsAreOrderedByPriorityThenSizeThenAge) {
  std::vector<DrainJob> jobs{job(1, 0, 10), job(2, 5, 90), job(3, 5, 20), job(4, -1, 1), job(5, 0, 10)};
  std::sort(jobs.begin(), jobs.end(), goes_before);
  std::vector<JobId> order;
  for (const DrainJob& j : jobs) order.push_back(j.job);
  EXPECT_EQ(order, (std::vector<JobId>{3, 2, 1, 5, 4}));
}

TEST(DrainRules, DrainEndsOnlyWhenNoMoveIsInProgress) {
  using S = DrainJobState;
  EXPECT_EQ(result_of(with({}), false, false), DrainResult::kEmpty);
  EXPECT_EQ(result_of(with({}), true, false), DrainResult::kNone);  // a job is moving to this place
  EXPECT_EQ(result_of(with({S::kMoved, S::kMoving}), false, true), DrainResult::kNone);
  EXPECT_EQ(result_of(with({S::kBlocked, S::kRestoring}), false, true), DrainResult::kNone);
  EXPECT_EQ(result_of(with({S::kBlocked, S::kWaiting}), false, false), DrainResult::kNone);
  EXPECT_EQ(result_of(with({S::kBlocked, S::kWaiting}), false, true), DrainResult::kDeadline);
  EXPECT_EQ(result_of(with({S::kMoved, S::kBlocked}), false, false), DrainResult::kIncomplete);
  EXPECT_EQ(result_of(with({S::kMoved, S::kFailed}), false, true), DrainResult::kIncomplete);
  EXPECT_EQ(result_of(with({S::kMoved, S::kLeft}), false, false), DrainResult::kIncomplete);
  EXPECT_EQ(result_of(with({S::kMoved, S::kEnded, S::kRestored, S::kLost}), false, false),
            DrainResult::kEmpty);
}

TEST(DrainRules, CancelledDrainEndsAfterItsOpenMoves) {
  using S = DrainJobState;
  Drain drain = with({S::kWaiting, S::kMoving});
  drain.cancelled = true;
  EXPECT_EQ(result_of(drain, false, false), DrainResult::kNone);
  drain.jobs[1].state = S::kMoved;
  EXPECT_EQ(result_of(drain, false, false), DrainResult::kCancelled);
}

TEST(DrainRules, ExitCodesMatchTheDrainResults) {
  using S = DrainJobState;
  const auto code = [](std::vector<S> states, DrainResult result) {
    Drain drain = with(std::move(states));
    drain.result = result;
    return exit_code_of(drain);
  };
  EXPECT_EQ(code({}, DrainResult::kEmpty), 0);
  EXPECT_EQ(code({S::kMoved, S::kEnded}, DrainResult::kEmpty), 0);
  EXPECT_EQ(code({S::kMoved, S::kRestored}, DrainResult::kEmpty), 3);
  EXPECT_EQ(code({S::kMoved, S::kBlocked}, DrainResult::kIncomplete), 1);
  EXPECT_EQ(code({S::kWaiting}, DrainResult::kDeadline), 2);
  EXPECT_EQ(code({S::kWaiting}, DrainResult::kCancelled), 2);
  EXPECT_EQ(code({S::kMoved, S::kLost}, DrainResult::kEmpty), 4);
}

TEST(DrainRules, DrainIsStoredAndLoadedUnchanged) {
  Drain drain = with({DrainJobState::kMoved, DrainJobState::kMoving});
  drain.scope = Scope("node-a", 3);
  drain.parallel = 7;
  drain.fallback = Fallback::kRestore;
  drain.reason = "new \xff driver";  // not UTF-8: must not make the row unreadable
  drain.deadline_ms = 99;
  drain.cancelled = true;
  drain.cancel_reason = "no";
  drain.jobs[0].to = Place("node-b", 1);
  drain.jobs[0].downtime_ms = 1.5;
  drain.jobs[1].migration = 12;
  drain.jobs[1].attempts = 2;
  drain.jobs[1].restore_tried = true;
  const Drain read = record::from_text<Drain>(record::to_text(drain));
  EXPECT_EQ(read.scope, drain.scope);
  EXPECT_EQ(read.parallel, 7U);
  EXPECT_EQ(read.fallback, Fallback::kRestore);
  EXPECT_EQ(read.deadline_ms, 99);
  EXPECT_TRUE(read.cancelled);
  EXPECT_EQ(read.cancel_reason, "no");
  EXPECT_EQ(read.jobs, drain.jobs);
  EXPECT_TRUE(read.open());
}

TEST(DrainRules, PlacesAndIdsAreParsed) {
  EXPECT_EQ(parse_scope("node-a").value(), Scope("node-a", std::nullopt));
  EXPECT_EQ(parse_scope("node-a:2").value(), Scope("node-a", 2));
  for (const char* bad : {"", ":1", "node-a:", "node-a:x", "node-a:-1", "a b", "node-a:99999999999"})
    EXPECT_FALSE(parse_scope(bad)) << bad;
  EXPECT_TRUE(Scope("a", std::nullopt).covers(Place("a", 5)));
  EXPECT_FALSE(Scope("a", 1).covers(Place("a", 5)));
  EXPECT_FALSE(Scope("a", std::nullopt).covers(Place("b", 5)));
  EXPECT_EQ(parse_drain_id(drain_text(3)), DrainId{3});
  for (const char* bad : {"", "d", "d0", "m3", "d3x"}) EXPECT_FALSE(parse_drain_id(bad)) << bad;
}

}  // namespace
}  // namespace ckpt::coordinator
