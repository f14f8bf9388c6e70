// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/rebalance/rebalance_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <queue>
#include <random>
#include <set>

namespace ckpt::coordinator {
namespace {

PackGpu gpu(const std::string& node, std::uint32_t index, std::uint64_t available) {
  PackGpu g;
  g.place = Place(node, index);
  g.available = available;
  return g;
}

PackJob job(JobId id, std::size_t on, std::uint64_t bytes, std::size_t gpus) {
  PackJob j;
  j.id = id;
  j.name = "job" + std::to_string(id);
  j.gpu = on;
  j.bytes = j.state_bytes = bytes;
  j.may_go.assign(gpus, true);
  return j;
}

// Applies a plan move by move. Each job fits at its turn, goes to an allowed GPU, and is moved only once.
std::vector<std::size_t> follow(const PackProblem& problem, const PackPlan& plan) {
  std::vector<std::size_t> places;
  std::vector<std::uint64_t> available;
  for (const PackJob& j : problem.jobs) places.push_back(j.gpu);
  for (const PackGpu& g : problem.gpus) available.push_back(g.available);
  std::set<std::size_t> moved;
  for (const PackMove& move : plan.moves) {
    const PackJob& j = problem.jobs.at(move.job);
    EXPECT_TRUE(moved.insert(move.job).second);
    EXPECT_EQ(j.obstacle, "");
    EXPECT_NE(move.to, j.gpu);
    EXPECT_TRUE(j.may_go.at(move.to));
    EXPECT_GE(available.at(move.to), j.bytes);
    available[move.to] -= j.bytes;
    available[j.gpu] += j.bytes;
    places[move.job] = move.to;
  }
  return places;
}

std::size_t free_gpus(const PackProblem& problem, const std::vector<std::size_t>& places) {
  std::size_t count = 0;
  for (std::size_t g = 0; g < problem.gpus.size(); ++g) {
    const bool taken = problem.gpus[g].pinned || std::find(places.begin(), places.end(), g) != places.end();
    count += problem.gpus[g].counts && !taken ? 1 : 0;
  }
  return count;
}

// Returns the most GPUs that can be freed, and the least cost for that. Searches every state that any order
// of moves can reach, with one move per job, cheapest first.
std::pair<std::size_t, std::uint64_t> brute_force(const PackProblem& problem) {
  using State = std::vector<std::size_t>;
  using Entry = std::pair<std::uint64_t, State>;
  State start;
  for (const PackJob& j : problem.jobs) start.push_back(j.gpu);
  std::map<State, std::uint64_t> best{{start, 0}};
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  open.emplace(0, start);
  std::pair<std::size_t, std::uint64_t> answer(free_gpus(problem, start), 0);
  while (!open.empty()) {
    const auto [cost, state] = open.top();
    open.pop();
    if (cost > best.at(state)) continue;
    const std::size_t free = free_gpus(problem, state);
    if (free > answer.first) answer = {free, cost};
    for (std::size_t j = 0; j < state.size(); ++j) {
      if (state[j] != start[j] || !problem.jobs[j].obstacle.empty()) continue;
      for (std::size_t g = 0; g < problem.gpus.size(); ++g) {
        if (g == start[j] || !problem.jobs[j].may_go[g]) continue;
        std::uint64_t taken = 0;
        std::uint64_t there = problem.gpus[g].available;
        for (std::size_t other = 0; other < state.size(); ++other) {
          if (start[other] == g) there += problem.jobs[other].bytes;
          if (state[other] == g) taken += problem.jobs[other].bytes;
        }
        if (there < taken + problem.jobs[j].bytes) continue;
        State next = state;
        next[j] = g;
        const std::uint64_t then = cost + move_cost(problem, j, g);
        const auto known = best.find(next);
        if (known != best.end() && known->second <= then) continue;
        best[next] = then;
        open.emplace(then, next);
      }
    }
  }
  return answer;
}

PackProblem random_problem(std::mt19937_64& random) {
  PackProblem problem;
  const std::size_t gpus = 2 + random() % 3;
  const std::size_t jobs = 1 + random() % 5;
  for (std::size_t g = 0; g < gpus; ++g) {
    PackGpu& one =
        problem.gpus.emplace_back(gpu(g % 2 == 0 ? "a" : "b", static_cast<std::uint32_t>(g), random() % 8));
    one.counts = random() % 8 != 0;
    one.pinned = random() % 8 == 0;
  }
  for (std::size_t j = 0; j < jobs; ++j) {
    PackJob& one = problem.jobs.emplace_back(job(j + 1, random() % gpus, 1 + random() % 6, gpus));
    if (random() % 8 == 0) one.obstacle = "it is paused";
    for (std::size_t g = 0; g < gpus; ++g) one.may_go[g] = random() % 5 != 0;
  }
  return problem;
}

// Returns how many GPUs are free if one move of the plan is left out, and the other moves still fit in their
// order.
std::optional<std::size_t> free_without(const PackProblem& problem, const PackPlan& plan,
                                        std::size_t left_out) {
  std::vector<std::size_t> places;
  std::vector<std::uint64_t> available;
  for (const PackJob& j : problem.jobs) places.push_back(j.gpu);
  for (const PackGpu& g : problem.gpus) available.push_back(g.available);
  for (std::size_t m = 0; m < plan.moves.size(); ++m) {
    if (m == left_out) continue;
    const PackJob& j = problem.jobs.at(plan.moves[m].job);
    if (available.at(plan.moves[m].to) < j.bytes) return std::nullopt;
    available[plan.moves[m].to] -= j.bytes;
    available[j.gpu] += j.bytes;
    places[plan.moves[m].job] = plan.moves[m].to;
  }
  return free_gpus(problem, places);
}

// No move is needless, even where the search is stopped early with a result that is not the best.
TEST(Rebalance, PlanContainsNoUnnecessaryMove) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 3000; ++round) {
    const PackProblem problem = random_problem(random);
    const PackPlan plan = plan_packing(problem, 1 + random() % 60);
    for (std::size_t m = 0; m < plan.moves.size(); ++m) {
      const auto free = free_without(problem, plan, m);
      ASSERT_TRUE(!free || *free < plan.free_after) << "round " << round << " move " << m;
    }
  }
}

TEST(Rebalance, PlanJoinsTwoHalfFullGpus) {
  PackProblem problem;
  problem.gpus = {gpu("a", 0, 5), gpu("b", 0, 5)};
  problem.jobs = {job(1, 0, 3, 2), job(2, 1, 4, 2)};
  const PackPlan plan = plan_packing(problem);
  ASSERT_EQ(plan.moves.size(), 1U);
  EXPECT_EQ(plan.moves[0].job, 0U);  // the smaller job
  EXPECT_EQ(plan.freed, std::vector<std::size_t>{0});
  EXPECT_EQ(plan.free_before, 0U);
  EXPECT_EQ(plan.free_after, 1U);
  EXPECT_TRUE(plan.exhaustive);
  EXPECT_EQ(why_move(problem, plan, 0), "frees a:0");
}

TEST(Rebalance, OnlyGpusFreedByMovesAreReported) {
  PackProblem problem;
  problem.gpus = {gpu("a", 0, 5), gpu("b", 0, 5), gpu("c", 0, 5)};
  problem.jobs = {job(1, 0, 3, 3), job(2, 1, 4, 3)};
  problem.jobs[0].may_go[2] = problem.jobs[1].may_go[2] = false;
  const PackPlan plan = plan_packing(problem);
  EXPECT_EQ(plan.freed, std::vector<std::size_t>{0});
  EXPECT_EQ(plan.free_before, 1U);
  EXPECT_EQ(plan.free_after, 2U);
}

TEST(Rebalance, EveryMoveHasACostThatDoublesForAnotherNode) {
  PackProblem problem;
  problem.gpus = {gpu("a", 0, 5), gpu("a", 1, 5), gpu("b", 0, 5)};
  problem.jobs = {job(1, 0, 3, 3)};
  EXPECT_EQ(move_cost(problem, 0, 1), 3U);
  EXPECT_EQ(move_cost(problem, 0, 2), 6U);
  problem.jobs[0].state_bytes = 0;
  EXPECT_EQ(move_cost(problem, 0, 1), 1U);
  EXPECT_EQ(move_cost(problem, 0, 2), 2U);
}

TEST(Rebalance, MovesThatFreeMemoryPrecedeMovesThatNeedMemory) {
  PackProblem problem;
  problem.gpus = {gpu("a", 0, 5), gpu("b", 0, 5), gpu("c", 0, 5), gpu("d", 0, 5)};
  problem.jobs = {job(1, 1, 1, 4), job(2, 3, 1, 4), job(3, 3, 1, 4), job(4, 3, 1, 4)};
  PackPlan plan;
  plan.freed = {3};
  for (const auto& [who, where] : {std::pair(0, 0), std::pair(1, 1), std::pair(2, 2), std::pair(3, 1)}) {
    PackMove& move = plan.moves.emplace_back();
    move.job = static_cast<std::size_t>(who);
    move.to = static_cast<std::size_t>(where);
  }
  EXPECT_EQ(why_move(problem, plan, 0), "frees space at b:0 for job2, job4");
  EXPECT_EQ(why_move(problem, plan, 2), "frees d:0");
}

TEST(Rebalance, PlanIsEmptyIfNoGpuCanBeFreed) {
  PackProblem problem;
  problem.gpus = {gpu("a", 0, 2), gpu("b", 0, 2), gpu("c", 0, 9)};
  problem.jobs = {job(1, 0, 3, 3), job(2, 1, 3, 3)};
  problem.gpus[2].pinned = true;
  problem.jobs[0].may_go = problem.jobs[1].may_go = {true, true, false};
  const PackPlan plan = plan_packing(problem);
  EXPECT_TRUE(plan.moves.empty());
  EXPECT_TRUE(plan.freed.empty());
}

TEST(Rebalance, EmptyGpuIsUsedAsATargetOnlyIfNecessary) {
  PackProblem problem;
  problem.gpus = {gpu("a", 0, 0), gpu("b", 0, 9)};
  problem.jobs = {job(1, 0, 3, 2)};
  EXPECT_TRUE(plan_packing(problem).moves.empty());
}

TEST(Rebalance, ALargeEmptyGpuMayTakeTheJobsOfTwoSmallGpus) {
  PackProblem problem;
  problem.gpus = {gpu("a", 0, 1), gpu("a", 1, 1), gpu("b", 0, 20)};
  problem.jobs = {job(1, 0, 6, 3), job(2, 1, 6, 3)};
  const PackPlan plan = plan_packing(problem);
  EXPECT_EQ(plan.moves.size(), 2U);
  EXPECT_EQ(plan.free_after, plan.free_before + 1);
}

TEST(Rebalance, JobIsMovedFirstToFreeMemoryForAnotherJob) {
  PackProblem problem;
  // The job of c fits nowhere before the small job of b has moved to a.
  problem.gpus = {gpu("a", 0, 4), gpu("b", 0, 3), gpu("c", 0, 0)};
  problem.jobs = {job(1, 0, 6, 3), job(2, 1, 4, 3), job(3, 1, 3, 3), job(4, 2, 5, 3)};
  const PackPlan plan = plan_packing(problem);
  ASSERT_EQ(plan.moves.size(), 2U);
  EXPECT_EQ(plan.freed, std::vector<std::size_t>{2});
  EXPECT_EQ(plan.moves[1].job, 3U);
  EXPECT_EQ(why_move(problem, plan, 0), "frees space at b:0 for job4");
  follow(problem, plan);
}

TEST(Rebalance, UnmovableJobsAndForbiddenGpusAreRespected) {
  PackProblem problem;
  problem.gpus = {gpu("a", 0, 9), gpu("b", 0, 9)};
  problem.jobs = {job(1, 0, 3, 2), job(2, 1, 4, 2)};
  problem.jobs[0].obstacle = "it is paused";
  problem.jobs[1].may_go = {false, false};
  EXPECT_TRUE(plan_packing(problem).moves.empty());
  problem.jobs[1].may_go = {true, false};
  EXPECT_EQ(plan_packing(problem).moves.size(), 1U);
}

TEST(Rebalance, PlanPrefersAMoveWithinTheNode) {
  PackProblem problem;
  problem.gpus = {gpu("a", 0, 0), gpu("b", 0, 9), gpu("a", 1, 9)};
  problem.jobs = {job(1, 0, 3, 3), job(2, 1, 7, 3), job(3, 2, 7, 3)};
  problem.jobs[1].may_go = problem.jobs[2].may_go = {false, false, false};
  const PackPlan plan = plan_packing(problem);
  ASSERT_EQ(plan.moves.size(), 1U);
  EXPECT_EQ(plan.moves[0].to, 2U);
}

TEST(Rebalance, PlanMatchesExhaustiveSearch) {
  std::mt19937_64 random(11);
  unsigned freed = 0;
  for (int round = 0; round < 3000; ++round) {
    const PackProblem problem = random_problem(random);
    const PackPlan plan = plan_packing(problem);
    ASSERT_TRUE(plan.exhaustive) << round;
    const auto [free, cost] = brute_force(problem);
    ASSERT_EQ(plan.free_after, free) << round;
    ASSERT_EQ(plan.cost, cost) << round;
    const std::vector<std::size_t> places = follow(problem, plan);
    ASSERT_EQ(free_gpus(problem, places), plan.free_after) << round;
    ASSERT_EQ(plan.moves.empty(), plan.free_after == plan.free_before) << round;
    freed += plan.free_after > plan.free_before ? 1 : 0;
  }
  EXPECT_GT(freed, 300U);  // otherwise the problems prove little
}

TEST(Rebalance, EqualProblemsGetEqualPlans) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    const PackProblem problem = random_problem(random);
    const PackPlan one = plan_packing(problem);
    const PackPlan two = plan_packing(problem);
    ASSERT_EQ(one.moves.size(), two.moves.size());
    for (std::size_t i = 0; i < one.moves.size(); ++i) {
      EXPECT_EQ(one.moves[i].job, two.moves[i].job);
      EXPECT_EQ(one.moves[i].to, two.moves[i].to);
    }
  }
}

// With many GPUs and jobs, the search ends at its budget. Its plan can be carried out and frees GPUs.
TEST(Rebalance, ALargeClusterIsPlannedWithinTheBudget) {
  std::mt19937_64 random(3);
  PackProblem problem;
  constexpr std::size_t kGpus = 48;
  for (std::size_t g = 0; g < kGpus; ++g) {
    problem.gpus.push_back(gpu("n" + std::to_string(g / 8), static_cast<std::uint32_t>(g % 8), 60));
    problem.jobs.push_back(job(2 * g + 1, g, 5 + random() % 10, kGpus));
    problem.jobs.push_back(job(2 * g + 2, g, 5 + random() % 10, kGpus));
  }
  const PackPlan plan = plan_packing(problem);
  EXPECT_FALSE(plan.exhaustive);
  EXPECT_GE(plan.free_after, kGpus / 2);
  EXPECT_EQ(free_gpus(problem, follow(problem, plan)), plan.free_after);
  // Every move of the plan is necessary.
  for (std::size_t left_out = 0; left_out < plan.moves.size(); ++left_out) {
    std::vector<std::size_t> places = follow(problem, plan);
    places[plan.moves[left_out].job] = problem.jobs[plan.moves[left_out].job].gpu;
    EXPECT_LT(free_gpus(problem, places), plan.free_after);
  }
}

}  // namespace
}  // namespace ckpt::coordinator
