// SPDX-License-Identifier: Apache-2.0
// Plans which jobs to move so that whole GPUs become free, and in which order. Pure: the same problem gives
// the same plan.
//
// A plan moves each job at most once, and each move fits when its turn comes. Of all such plans it is the one
// that leaves most GPUs without a job, and of these the one that moves least. A move within a node counts
// half. If the search does not end within its budget, it is the best found by then, and `exhaustive` is
// false. No single move of a plan could be left out. A plan that frees nothing has no moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/state/model.h"

namespace ckpt::coordinator {

struct PackGpu {
  Place place;
  std::uint64_t available = 0;  // that a job which comes may take
  bool counts = true;           // to have it free is worth something: it could take work
  bool pinned = false;          // something is on it, or on its way, that is none of the problem's jobs
};

struct PackJob {
  JobId id = 0;
  std::string name;
  std::size_t gpu = 0;            // where it runs
  std::uint64_t bytes = 0;        // that it needs wherever it is
  std::uint64_t state_bytes = 0;  // that a move of it copies
  std::string obstacle;           // why it cannot be moved; empty: it can
  std::vector<bool> may_go;       // by GPU, memory apart; its own is left out of account
};

struct PackProblem {
  std::vector<PackGpu> gpus;
  std::vector<PackJob> jobs;  // one a rank
};

struct PackMove {
  std::size_t job = 0;  // of the problem
  std::size_t to = 0;
};

struct PackPlan {
  std::vector<PackMove> moves;     // in order
  std::vector<std::size_t> freed;  // GPUs without a job at the end that had one
  std::size_t free_before = 0;     // GPUs that count and have none
  std::size_t free_after = 0;
  std::uint64_t cost = 0;
  bool exhaustive = true;
};

inline constexpr std::size_t kPackBudget = 50'000;  // steps of the search: some tens of milliseconds

[[nodiscard]] PackPlan plan_packing(const PackProblem& problem, std::size_t budget = kPackBudget);

// The cost of a move.
[[nodiscard]] std::uint64_t move_cost(const PackProblem& problem, std::size_t job, std::size_t to);

// "frees node-b:0", or the move that it frees memory for.
[[nodiscard]] std::string why_move(const PackProblem& problem, const PackPlan& plan, std::size_t move);

}  // namespace ckpt::coordinator
