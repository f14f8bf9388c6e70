// SPDX-License-Identifier: Apache-2.0
// A run of `rebalance`: its plan, the state of each move, and which move begins next. Plain values and pure
// functions. After the first failed move no further move begins. The run is over once the other moves in
// progress have ended.
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
  MigrationId migration = 0;  // the migration of the move; 0: no migration has begun
  std::string error;
};

struct RebalanceRun {
  PackProblem problem;
  PackPlan plan;
  std::vector<RebalanceMove> moves;  // the moves of the plan
  RunState state = RunState::kRunning;
  std::uint32_t parallel = 1;
  std::vector<std::uint64_t> available;  // the available bytes of each of the problem's GPUs, after the moves
                                         // that have begun and ended
  std::uint64_t revision = 1;
};

// Returns a run for that problem. No move has begun.
[[nodiscard]] RebalanceRun new_run(PackProblem problem, std::uint32_t parallel, std::uint64_t revision);
// Returns true if no further move begins and no move is in progress. `stopping` means that an operator stops
// the run.
[[nodiscard]] bool is_over(const RebalanceRun& run, bool stopping);
// Marks the next move as moving, and returns its index; nullopt if no move can begin now. The move fits
// according to the plan's own accounting. The migration checks the nodes' current memory before it begins.
std::optional<std::size_t> begin_next(RebalanceRun& run, bool stopping);
void end_move(RebalanceRun& run, std::size_t index, const Result<void>& moved);
// Ends the run, and returns the number of completed moves.
std::size_t finish(RebalanceRun& run);

}  // namespace ckpt::coordinator
