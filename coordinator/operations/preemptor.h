// SPDX-License-Identifier: Apache-2.0
// Moves away or parks jobs of lower priority before a job is placed that may preempt them
// (SubmitRequest::preempt). A dry run and a real request ask the same plan.
// Threads: one io_context on one thread. Errors: those of Planner; kRefused: that would not help; kTimedOut:
// their memory did not become free.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/operations/planner.h"
#include "libckpt/net/control/asio.h"

namespace ckpt::coordinator {

// A job that makes place for another one.
struct Displacement {
  JobId job = 0;
  std::string name;
  std::int32_t priority = 0;
  Place from;
  std::optional<Place> to;  // moved there live; nullopt: parked
};
// "low (j13) moves to node-b:0" or "low (j13) is parked".
[[nodiscard]] std::string to_text(const Displacement& displaced);

struct RunPlan {
  MigratePlan placing;
  std::vector<Displacement> displaced;  // first, in this order
};

class Preemptor {
 public:
  virtual ~Preemptor() = default;
  // Changes nothing. Without `to` it would not help, with the reason.
  [[nodiscard]] virtual Result<RunPlan> plan_for(const SubmitRequest& request) const = 0;
  // Returns once the job fits, with the jobs that were displaced; the caller submits it at once.
  virtual control::Task<Result<std::vector<Displacement>>> preempt_for(SubmitRequest request) = 0;
};

}  // namespace ckpt::coordinator
