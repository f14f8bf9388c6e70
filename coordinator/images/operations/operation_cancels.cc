// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/operations/operation_cancels.h"

#include <spdlog/spdlog.h>

#include "coordinator/images/wait_for_change.h"

namespace ckpt::coordinator {
namespace {

constexpr std::chrono::seconds kLongestCancel{60};

}  // namespace

// Subscribes to canceled snapshots. The operation's coroutine waits for the answer to the snapshot order,
// which the cancellation produces.
OperationCancels::OperationCancels(Dependencies deps) : deps_(deps) {
  deps_.job_runner.acted().subscribe([this](JobId id, const lifecycle::JobAction& action) {
    if (const auto* cancelled = std::get_if<lifecycle::SnapshotCancelled>(&action))
      deps_.snapshots.give_up_soon(id, cancelled->node, cancelled->incarnation);
  });
}

bool OperationCancels::give_up_parking(JobId id, const std::string& reason) {
  const Job* job = deps_.jobs.find(id);
  if (job == nullptr || lifecycle::state_of(*job) != lifecycle::RankState::kParking) return false;
  auto given_up = deps_.job_runner.order(id, lifecycle::SnapshotGivenUp{reason});
  if (!given_up && given_up.error().code() != ErrorCode::kRefused)
    spdlog::warn("the snapshot that parks {} was not cancelled: {}", job_text(id),
                 given_up.error().to_string());
  return given_up.has_value();
}

control::Task<Result<void>> OperationCancels::cancel_parking(JobId id, std::string reason) {
  if (!give_up_parking(id, reason))
    co_return Error(ErrorCode::kRefused, "The operation on images of " + job_text(id) +
                                             " cannot be cancelled now: try again when it is done");
  const auto deadline = std::chrono::steady_clock::now() + kLongestCancel;
  while (true) {
    const Job* job = deps_.jobs.find(id);
    if (job == nullptr || !job->operation) co_return ok();
    if (std::chrono::steady_clock::now() >= deadline)
      co_return Error(ErrorCode::kTimedOut,
                      "Node " + job->node() + " has not cancelled the snapshot of " + job->spec.name);
    co_await wait_for_change(deps_.jobs);
  }
}

}  // namespace ckpt::coordinator
