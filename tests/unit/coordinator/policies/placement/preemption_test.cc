// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/placement/preemption.h"

#include <gtest/gtest.h>

#include <random>

namespace ckpt::coordinator {
namespace {

GpuView gpu(std::uint32_t index, std::uint64_t free_bytes) {
  GpuView view;
  view.place = Place("a", index);
  view.total_bytes = 100;
  view.free_bytes = free_bytes;
  return view;
}

Occupant occupant(JobId id, std::uint32_t on, std::int32_t priority, std::uint64_t bytes) {
  Occupant o;
  o.id = id;
  o.place = Place("a", on);
  o.priority = priority;
  o.bytes = bytes;
  o.started_ms = static_cast<std::int64_t>(id);
  return o;
}

PlacementRequest needs(std::uint64_t bytes) {
  PlacementRequest request;
  request.memory_bytes = bytes;
  return request;
}

std::vector<JobId> ids(const Preemption& preemption) {
  std::vector<JobId> out;
  for (const Occupant& victim : preemption.victims) out.push_back(victim.id);
  return out;
}

TEST(Preemption, LowestPriorityThenYoungestJobIsParkedFirst) {
  const std::vector<Occupant> jobs{occupant(1, 0, 0, 10), occupant(2, 0, 0, 10), occupant(3, 0, 4, 10)};
  const auto one = plan_preemption({gpu(0, 5)}, needs(15), 5, jobs);
  ASSERT_TRUE(one);
  EXPECT_EQ(ids(*one), std::vector<JobId>{2});
  const auto all = plan_preemption({gpu(0, 5)}, needs(35), 5, jobs);
  ASSERT_TRUE(all);
  EXPECT_EQ(ids(*all), (std::vector<JobId>{2, 1, 3}));
}

TEST(Preemption, EqualPriorityOrEnoughMemoryParksNoJob) {
  const std::vector<Occupant> jobs{occupant(1, 0, 5, 10), occupant(2, 0, 4, 3)};
  EXPECT_FALSE(plan_preemption({gpu(0, 5)}, needs(15), 5, jobs));
  EXPECT_FALSE(plan_preemption({gpu(0, 5)}, needs(9), 4, jobs));
  const auto none = plan_preemption({gpu(0, 5)}, needs(5), 5, jobs);
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->victims.empty());
}

TEST(Preemption, JobThatNeedNotBeParkedContinues) {
  // The first job is too small to help once the second job has left.
  const std::vector<Occupant> jobs{occupant(1, 0, 0, 1), occupant(2, 0, 1, 20)};
  const auto found = plan_preemption({gpu(0, 5)}, needs(20), 5, jobs);
  ASSERT_TRUE(found);
  EXPECT_EQ(ids(*found), std::vector<JobId>{2});
}

TEST(Preemption, GpuWithTheLeastHarmIsChosen) {
  const std::vector<Occupant> jobs{occupant(1, 0, 3, 20), occupant(2, 1, 1, 10), occupant(3, 1, 1, 10),
                                   occupant(4, 2, 1, 20)};
  const auto found = plan_preemption({gpu(0, 0), gpu(1, 0), gpu(2, 0)}, needs(15), 5, jobs);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->place, Place("a", 2));
}

TEST(Preemption, EqualHarmPrefersFewerThenSmallerJobsThenTheFirstGpu) {
  const auto place_of = [](const std::vector<Occupant>& jobs) {
    return plan_preemption({gpu(0, 0), gpu(1, 0)}, needs(15), 5, jobs)->place;
  };
  EXPECT_EQ(place_of({occupant(1, 0, 1, 8), occupant(2, 0, 1, 8), occupant(3, 1, 1, 30)}), Place("a", 1));
  EXPECT_EQ(place_of({occupant(1, 0, 1, 20), occupant(2, 1, 1, 16)}), Place("a", 1));
  EXPECT_EQ(place_of({occupant(1, 1, 1, 16), occupant(2, 0, 1, 16)}), Place("a", 0));
  // The victim of the highest priority decides, however low the other victim's priority is.
  EXPECT_EQ(place_of({occupant(1, 0, 0, 8), occupant(2, 0, 3, 8), occupant(3, 1, 2, 30)}), Place("a", 1));
  EXPECT_EQ(
      plan_preemption({gpu(1, 0), gpu(0, 0)}, needs(15), 5, {occupant(1, 1, 1, 16), occupant(2, 0, 1, 16)})
          ->place,
      Place("a", 0));
}

TEST(Preemption, MarginIsIncludedInTheRequiredMemory) {
  PlacementRequest request = needs(15);
  request.margin_bytes = 3;
  EXPECT_FALSE(plan_preemption({gpu(0, 5)}, request, 5, {occupant(1, 0, 0, 12)}));
  EXPECT_TRUE(plan_preemption({gpu(0, 5)}, request, 5, {occupant(1, 0, 0, 13)}));
}

TEST(Preemption, FiltersAndPromisesAreRespected) {
  std::vector<Occupant> jobs{occupant(1, 0, 0, 50)};
  GpuView closed = gpu(0, 0);
  closed.closed = "cordoned";
  EXPECT_FALSE(plan_preemption({closed}, needs(5), 5, jobs));
  GpuView promised = gpu(0, 0);
  promised.promised_bytes = 46;
  EXPECT_FALSE(plan_preemption({promised}, needs(5), 5, jobs));
  promised.promised_bytes = 45;
  EXPECT_TRUE(plan_preemption({promised}, needs(5), 5, jobs));
  jobs[0].obstacle = "it is paused";
  EXPECT_FALSE(plan_preemption({gpu(0, 0)}, needs(5), 5, jobs));
}

TEST(Preemption, OnlyNecessaryJobsOfLowerPriorityAreParked) {
  std::mt19937_64 random(9);
  unsigned found_some = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<GpuView> gpus;
    std::vector<Occupant> jobs;
    for (std::uint32_t g = 0; g < 3; ++g) gpus.push_back(gpu(g, random() % 20));
    for (JobId id = 1; id <= 1 + random() % 8; ++id)
      jobs.push_back(occupant(id, static_cast<std::uint32_t>(random() % 3),
                              static_cast<std::int32_t>(random() % 5), 1 + random() % 20));
    const PlacementRequest request = needs(1 + random() % 50);
    const auto priority = static_cast<std::int32_t>(random() % 6);
    const auto found = plan_preemption(gpus, request, priority, jobs);
    // A preemption is possible if and only if the jobs of lower priority on some GPU use enough memory.
    bool possible = false;
    for (const GpuView& view : gpus) {
      std::uint64_t max_free = view.free_bytes;
      for (const Occupant& job : jobs)
        max_free += job.place == view.place && job.priority < priority ? job.bytes : 0;
      possible = possible || max_free >= request.memory_bytes;
    }
    ASSERT_EQ(found.has_value(), possible) << round;
    if (!found) continue;
    std::uint64_t available = gpus[found->place.gpu].free_bytes;
    for (const Occupant& victim : found->victims) {
      ASSERT_LT(victim.priority, priority);
      ASSERT_EQ(victim.place, found->place);
      available += victim.bytes;
    }
    ASSERT_GE(available, request.memory_bytes);
    for (const Occupant& victim : found->victims) ASSERT_LT(available - victim.bytes, request.memory_bytes);
    found_some += found->victims.size() > 1 ? 1 : 0;
  }
  EXPECT_GT(found_some, 100U);
}

Occupant movable(JobId id, std::uint32_t on, std::uint64_t bytes) {
  Occupant o = occupant(id, on, 0, bytes);
  o.move = needs(bytes);
  o.move.not_here = o.place;
  return o;
}

TEST(Preemption, OccupantCanMoveIfAnotherGpuHasEnoughMemory) {
  std::vector<Occupant> jobs{movable(1, 0, 40), movable(2, 0, 60), movable(3, 0, 10)};
  jobs[2].obstacle = "it is paused";
  find_places({gpu(0, 90), gpu(1, 50)}, jobs);
  EXPECT_TRUE(jobs[0].has_place);
  EXPECT_FALSE(jobs[1].has_place) << "only its own GPU has the memory";
  EXPECT_FALSE(jobs[2].has_place);
}

TEST(Preemption, LaterVictimCannotUseMemoryTakenByAnEarlierVictim) {
  const std::vector<Occupant> victims{movable(1, 0, 30), movable(2, 0, 30), movable(3, 0, 20)};
  const auto targets = targets_of({gpu(0, 0), gpu(1, 50)}, victims);
  ASSERT_EQ(targets.size(), 3U);
  EXPECT_EQ(targets[0], Place("a", 1));
  EXPECT_EQ(targets[1], std::nullopt) << "it is parked";
  EXPECT_EQ(targets[2], Place("a", 1));
}

TEST(Preemption, ReasonNamesTheFirstObstacles) {
  std::vector<Occupant> jobs;
  for (JobId id = 1; id <= 5; ++id) {
    jobs.push_back(occupant(id, 0, 0, 1));
    jobs.back().name = "n" + std::to_string(id);
    if (id > 1) jobs.back().obstacle = "busy";
  }
  EXPECT_EQ(why_no_preemption(3, {}), "moving or parking jobs of a priority below 3 would not help");
  EXPECT_EQ(why_no_preemption(3, jobs),
            "moving or parking jobs of a priority below 3 would not help (n2: busy; n3: busy; n4: busy; and "
            "1 more)");
}

}  // namespace
}  // namespace ckpt::coordinator
