// SPDX-License-Identifier: Apache-2.0
// The interface for preemption. Before a job that may preempt (SubmitRequest::preempt) is placed, jobs of
// lower priority are moved away or parked. A dry run and a real request use the same plan.
// Threads: one io_context on one thread. Errors: those of Planner; kRefused if preemption would not help;
// kTimedOut if the jobs' memory did not become free.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/operations/planner.h"
#include "libckpt/net/control/asio.h"

namespace ckpt::coordinator {

// A job that is displaced by another job.
struct Displacement {
  JobId job = 0;
  std::string name;
  std::int32_t priority = 0;
  Place from;
  std::optional<Place> to;  // the target of the live move; nullopt: the job is parked
};
// Returns the displacement as text: "low (j13) moves to node-b:0" or "low (j13) is parked".
[[nodiscard]] std::string to_text(const Displacement& displaced);

// The plan of a start. Without places in `placing` it is not possible, and `placing` has the reason.
struct RunPlan {
  GangPlan placing;
  std::vector<Displacement> displaced;  // the jobs to displace first, in this order
};

class Preemptor {
 public:
  virtual ~Preemptor() = default;
  // Returns the plan for the request. Changes nothing. A plan without places has the reason why preemption
  // would not help.
  [[nodiscard]] virtual Result<RunPlan> plan_for(const SubmitRequest& request) const = 0;
  // Displaces jobs. Returns the displaced jobs once the new job fits. The caller must submit the new job at
  // once.
  virtual control::Task<Result<std::vector<Displacement>>> preempt_for(SubmitRequest request) = 0;
};

}  // namespace ckpt::coordinator
