// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/rebalance/rebalance_run.h"

#include <algorithm>
#include <utility>

namespace ckpt::coordinator {
namespace {

std::size_t count_in(const RebalanceRun& run, MoveState state) {
  return static_cast<std::size_t>(std::count_if(run.moves.begin(), run.moves.end(),
                                                [&](const RebalanceMove& m) { return m.state == state; }));
}

// Returns the index of the next move. Moves begin in the order of the plan.
std::size_t next_index(const RebalanceRun& run) {
  const auto next = std::find_if(run.moves.begin(), run.moves.end(),
                                 [](const RebalanceMove& m) { return m.state == MoveState::kWaiting; });
  return static_cast<std::size_t>(next - run.moves.begin());
}

bool begins_no_more(const RebalanceRun& run, bool stopping) {
  return stopping || count_in(run, MoveState::kFailed) > 0 || next_index(run) == run.moves.size();
}

}  // namespace

RebalanceRun new_run(PackProblem problem, std::uint32_t parallel, std::uint64_t revision) {
  RebalanceRun run;
  run.problem = std::move(problem);
  run.plan = plan_packing(run.problem);
  run.moves.resize(run.plan.moves.size());
  run.parallel = parallel;
  run.revision = revision;
  for (const PackGpu& gpu : run.problem.gpus) run.available.push_back(gpu.available);
  return run;
}

bool is_over(const RebalanceRun& run, bool stopping) {
  return begins_no_more(run, stopping) && count_in(run, MoveState::kMoving) == 0;
}

std::optional<std::size_t> begin_next(RebalanceRun& run, bool stopping) {
  const std::size_t moving = count_in(run, MoveState::kMoving);
  if (begins_no_more(run, stopping) || moving >= run.parallel) return std::nullopt;
  const std::size_t next = next_index(run);
  const PackMove& move = run.plan.moves[next];
  const std::uint64_t bytes = run.problem.jobs[move.job].bytes;
  std::uint64_t& available = run.available[move.to];
  if (moving > 0 && available < bytes) return std::nullopt;
  available -= std::min(available, bytes);
  run.moves[next].state = MoveState::kMoving;
  return next;
}

void end_move(RebalanceRun& run, std::size_t index, const Result<void>& moved) {
  RebalanceMove& move = run.moves[index];
  if (!moved) {
    move.state = MoveState::kFailed;
    move.error = moved.error().to_string();
    return;
  }
  const PackJob& job = run.problem.jobs[run.plan.moves[index].job];
  run.available[job.gpu] += job.bytes;
  move.state = MoveState::kDone;
}

std::size_t finish(RebalanceRun& run) {
  const bool failed = count_in(run, MoveState::kFailed) > 0;
  const std::size_t done = count_in(run, MoveState::kDone);
  for (RebalanceMove& move : run.moves) {
    if (move.state == MoveState::kWaiting) move.state = MoveState::kLeft;
  }
  const bool whole = done == run.moves.size();
  run.state = failed ? RunState::kFailed : whole ? RunState::kDone : RunState::kStopped;
  return done;
}

}  // namespace ckpt::coordinator
