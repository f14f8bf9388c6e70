// SPDX-License-Identifier: Apache-2.0
// A plan of moves that makes whole GPUs free: which jobs move, and in which order. Pure: the same problem
// gives the same plan.
//
// A plan moves each job at most once, and each move fits at its turn. Among all such plans, it leaves the
// most GPUs without a job, and among these it copies the least. A move within a node counts half. If the
// search does not end within its budget, the result is the best plan found so far, and `exhaustive` is false.
// Every single move of a plan is necessary. A plan that frees no GPU has no moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/state/model.h"

namespace ckpt::coordinator {

struct PackGpu {
  Place place;
  std::uint64_t available = 0;  // the memory that a new job may use
  bool counts = true;           // true if the GPU could accept work, so that it counts once it is free
  bool pinned = false;          // something other than the problem's jobs is on the GPU, or on its way to it
};

struct PackJob {
  JobId id = 0;
  std::string name;
  std::size_t gpu = 0;            // the GPU where the job runs
  std::uint64_t bytes = 0;        // the memory that the job needs on any GPU
  std::uint64_t state_bytes = 0;  // the bytes that a move of the job copies
  std::string obstacle;           // why the job cannot be moved; empty: it can be moved
  std::vector<bool> may_go;       // the permitted GPUs, ignoring memory; the entry of the job's own GPU is
                                  // not used
};

struct PackProblem {
  std::vector<PackGpu> gpus;
  std::vector<PackJob> jobs;  // the jobs to place, one entry per rank
};

struct PackMove {
  std::size_t job = 0;  // the index of the job in the problem
  std::size_t to = 0;
};

struct PackPlan {
  std::vector<PackMove> moves;     // the moves in their order
  std::vector<std::size_t> freed;  // GPUs that had a job and have none at the end
  std::size_t free_before = 0;     // GPUs that count and have no job before the plan
  std::size_t free_after = 0;
  std::uint64_t cost = 0;
  bool exhaustive = true;
};

inline constexpr std::size_t kPackBudget = 50'000;  // the limit of steps of the search, which take some tens
                                                    // of milliseconds

[[nodiscard]] PackPlan plan_packing(const PackProblem& problem, std::size_t budget = kPackBudget);

// Returns the cost of the job's move to the GPU `to`: the bytes that the move copies, counted twice if it
// leaves the node.
[[nodiscard]] std::uint64_t move_cost(const PackProblem& problem, std::size_t job, std::size_t to);

// Returns the purpose of the move as text: "frees node-b:0", or the move for which this move frees memory.
[[nodiscard]] std::string why_move(const PackProblem& problem, const PackPlan& plan, std::size_t move);

}  // namespace ckpt::coordinator
