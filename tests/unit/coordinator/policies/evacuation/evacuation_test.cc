// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/evacuation/evacuation.h"

#include <gtest/gtest.h>

#include "libckpt/record/document.h"

namespace ckpt::coordinator {
namespace {

using wire::HealthOutcome;

Evacuation evacuation(EvacuationId id, bool urgent, HealthOutcome outcome,
                      EvacuationState state = EvacuationState::kQueued) {
  Evacuation e;
  e.id = id;
  e.job = id;
  e.urgent = urgent;
  e.outcome = outcome;
  e.state = state;
  return e;
}

std::vector<const Evacuation*> pointers(const std::vector<Evacuation>& all) {
  std::vector<const Evacuation*> out;
  out.reserve(all.size());
  for (const Evacuation& e : all) out.push_back(&e);
  return out;
}

std::vector<EvacuationId> next(const std::vector<Evacuation>& all, std::uint32_t parallel,
                               const std::set<EvacuationId>& waiting = {}) {
  EvacuationLimits limits;
  limits.parallel = parallel;
  return next_evacuations(pointers(all), waiting, limits);
}

using Ids = std::vector<EvacuationId>;

TEST(EvacuationDeadline, DeadlineGrowsWithTheBytes) {
  EXPECT_EQ(live_deadline_ms(30'000, 0), 30'000);
  EXPECT_EQ(live_deadline_ms(30'000, 80'000'000'000), 830'000);
}

TEST(EvacuationAttempts, FailedLiveMovesToOtherTargetsAreNotCountedAsAttempts) {
  Evacuation e = evacuation(1, true, HealthOutcome::kLive);
  e.started_ms = {1'000, 2'000, 3'000};
  e.failed = {{Place("node-b", 0), "it failed"}, {Place("node-c", 0), "it failed"}};
  EXPECT_EQ(attempts_of(1, {&e}, 4'000, EvacuationLimits()), 1U);
  const Evacuation again = record::from_text<Evacuation>(record::to_text(e));
  EXPECT_EQ(failed_text(again), "node-b:0: it failed; node-c:0: it failed");
}

TEST(EvacuationOrder, JobsWithReadableMemoryPrecedeRestores) {
  const std::vector<Evacuation> all{evacuation(1, true, HealthOutcome::kRestore),
                                    evacuation(2, true, HealthOutcome::kLive),
                                    evacuation(3, true, HealthOutcome::kLive)};
  EXPECT_EQ(next(all, 8), (Ids{2, 3, 1}));
  EXPECT_EQ(next(all, 2), (Ids{2, 3}));
}

TEST(EvacuationOrder, RunningEvacuationsCountAgainstTheLimit) {
  const std::vector<Evacuation> all{evacuation(1, true, HealthOutcome::kLive, EvacuationState::kMoving),
                                    evacuation(2, true, HealthOutcome::kLive, EvacuationState::kRestoring),
                                    evacuation(3, true, HealthOutcome::kLive, EvacuationState::kMoved),
                                    evacuation(4, true, HealthOutcome::kLive),
                                    evacuation(5, true, HealthOutcome::kLive)};
  EXPECT_EQ(next(all, 3), (Ids{4}));
  EXPECT_EQ(next(all, 2), Ids{});
}

TEST(EvacuationOrder, PredictiveEvacuationsRunOneAfterAnother) {
  std::vector<Evacuation> all{evacuation(1, false, HealthOutcome::kLive),
                              evacuation(2, false, HealthOutcome::kLive)};
  EXPECT_EQ(next(all, 8), (Ids{1}));
  all[0].state = EvacuationState::kMoving;
  EXPECT_EQ(next(all, 8), Ids{});
  all[0].state = EvacuationState::kMoved;
  EXPECT_EQ(next(all, 8), (Ids{2}));
  all.push_back(evacuation(3, true, HealthOutcome::kRestore));
  EXPECT_EQ(next(all, 8), (Ids{3}));
  EXPECT_EQ(next(all, 8, {3}), Ids{});  // the job waits for memory, which non-urgent evacuations must not
                                        // take
}

TEST(EvacuationOrder, WaitingEvacuationUsesNoSlot) {
  const std::vector<Evacuation> all{evacuation(1, true, HealthOutcome::kLive),
                                    evacuation(2, true, HealthOutcome::kLive)};
  EXPECT_EQ(next(all, 1, {1}), (Ids{2}));
}

TEST(Breaker, BreakerCountsStartsWithinItsWindow) {
  std::vector<Evacuation> all;
  for (const std::int64_t started : {100, 500, 900}) {
    all.push_back(evacuation(all.size() + 1, true, HealthOutcome::kLive));
    all.back().started_ms = {started, started + 1000};  // a second attempt does not count as a second
                                                        // evacuation
  }
  all.push_back(evacuation(9, true, HealthOutcome::kLive));  // an evacuation that never started
  EvacuationLimits limits;
  limits.breaker_window_ms = 500;
  limits.breaker_count = 3;
  EXPECT_EQ(recent_starts(pointers(all), 1000, 0, limits), 1U);
  EXPECT_EQ(recent_starts(pointers(all), 599, 0, limits), 3U);
  EXPECT_EQ(recent_starts(pointers(all), 599, 500, limits), 1U);  // the breaker was reset after the second
                                                                  // start
  EXPECT_FALSE(trips_breaker(2, limits));
  EXPECT_TRUE(trips_breaker(3, limits));
}

TEST(Breaker, AttemptsPerJobAreLimited) {
  std::vector<Evacuation> all{evacuation(1, true, HealthOutcome::kLive),
                              evacuation(2, true, HealthOutcome::kLive),
                              evacuation(3, true, HealthOutcome::kLive)};
  all[1].job = 1;  // the same job again, evacuated from its next GPU
  all[0].started_ms = {10, 500};
  all[1].started_ms = {600};
  all[2].started_ms = {600};
  EvacuationLimits limits;
  limits.job_window_ms = 500;
  EXPECT_EQ(attempts_of(1, pointers(all), 700, limits), 2U);
  EXPECT_EQ(attempts_of(3, pointers(all), 700, limits), 1U);
  EXPECT_EQ(attempts_of(1, pointers(all), 5000, limits), 0U);
}

TEST(EvacuationEntry, MostSevereVerdictWins) {
  Evacuation e = evacuation(1, false, HealthOutcome::kLive);
  e.reason = "rows remapped";
  Evacuation further = evacuation(0, true, HealthOutcome::kRestore);
  further.reason = "fallen off the bus";
  escalate(e, further);
  EXPECT_EQ(e.outcome, HealthOutcome::kRestore);
  EXPECT_TRUE(e.urgent);
  EXPECT_EQ(e.reason, "fallen off the bus");
  escalate(e, evacuation(0, false, HealthOutcome::kLive));
  EXPECT_EQ(e.outcome, HealthOutcome::kRestore);
  EXPECT_TRUE(e.urgent);
  EXPECT_EQ(e.reason, "fallen off the bus");
}

TEST(EvacuationEntry, EntryIsStoredAndLoadedUnchanged) {
  Evacuation e = evacuation(4, false, HealthOutcome::kRestore, EvacuationState::kRestored);
  e.job_name = "train";
  e.from = Place("a", 1);
  e.to = Place("b", 0);
  e.leave_node = e.revive = true;
  e.reason = "Xid \xff 79";
  e.lost_ms = 12;
  e.started_ms = {1, 2};
  e.migration = 7;
  const Evacuation read = record::from_text<Evacuation>(record::to_text(e));
  EXPECT_EQ(read.from, e.from);
  EXPECT_EQ(read.to, e.to);
  EXPECT_EQ(read.outcome, e.outcome);
  EXPECT_EQ(read.state, e.state);
  EXPECT_EQ(read.lost_ms, e.lost_ms);
  EXPECT_EQ(read.started_ms, e.started_ms);
  EXPECT_EQ(read.migration, 7U);
  EXPECT_TRUE(read.leave_node && read.revive && !read.urgent);
}

}  // namespace
}  // namespace ckpt::coordinator
