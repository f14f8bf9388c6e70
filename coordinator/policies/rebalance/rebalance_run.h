// SPDX-License-Identifier: Apache-2.0
// A run of `rebalance`: its plan, the state of each move, and which one begins next. Plain values and pure functions.
// The first move that fails ends a run once those beside it are over.
// Threads: one. Errors: none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/policies/rebalance/rebalance_plan.h"
#include "coordinator/state/model.h"
#include "libckpt/base/result.h"
#include "libckpt/record/names.h"

namespace ckpt::coordinator {

enum class MoveState : std::uint8_t { kWaiting = 1, kMoving, kDone, kFailed, kLeft };
constexpr auto names_of(record::Of<MoveState>) {
  return record::names<MoveState>({{MoveState::kWaiting, "waiting"},
                                   {MoveState::kMoving, "moving"},
                                   {MoveState::kDone, "done"},
                                   {MoveState::kFailed, "failed"},
                                   {MoveState::kLeft, "left"}});
}

enum class RunState : std::uint8_t { kRunning = 1, kDone, kFailed, kStopped };
constexpr auto names_of(record::Of<RunState>) {
  return record::names<RunState>({{RunState::kRunning, "running"},
                                  {RunState::kDone, "done"},
                                  {RunState::kFailed, "failed"},
                                  {RunState::kStopped, "stopped"}});
}

struct RebalanceMove {
  MoveState state = MoveState::kWaiting;
  MigrationId migration = 0;  // 0: none has begun
  std::string error;
};

struct RebalanceRun {
  PackProblem problem;
  PackPlan plan;
  std::vector<RebalanceMove> moves;  // of the plan
  RunState state = RunState::kRunning;
  std::uint32_t parallel = 1;
  std::vector<std::uint64_t> available;  // of the problem's GPUs, by what has begun and ended
  std::uint64_t revision = 1;
};

// Returns the run of that problem, with nothing begun.
[[nodiscard]] RebalanceRun new_run(PackProblem problem, std::uint32_t parallel, std::uint64_t revision);
// Returns true if no further move begins and none is under way. `stopping`: by an operator.
[[nodiscard]] bool is_over(const RebalanceRun& run, bool stopping);
// Marks the move that shall begin now as moving, and returns its index; nullopt: none. It fits by the plan's own account;
// the migration looks at the nodes' before it begins.
std::optional<std::size_t> begin_next(RebalanceRun& run, bool stopping);
void end_move(RebalanceRun& run, std::size_t index, const Result<void>& moved);
// Ends the run, and returns how many moves were done.
std::size_t finish(RebalanceRun& run);

}  // namespace ckpt::coordinator
