// SPDX-License-Identifier: Apache-2.0
// `run --preempt`: moves jobs of lower priority away to make space for a job that does not fit. A job without
// a place elsewhere, or whose move fails, is parked. It resumes automatically when its memory is free again
// (Images::park). One request runs at a time, so that two requests do not count on the same memory.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors: kRefused if
// displacing all permitted jobs would not help, or if one job could not be displaced (earlier ones already
// were). kTimedOut if the memory did not become free.
#pragma once

#include "coordinator/fleet/jobs.h"
#include "coordinator/images/images.h"
#include "coordinator/operations/moves.h"
#include "coordinator/operations/preemptor.h"
#include "coordinator/policies/placement/preemption.h"

namespace ckpt::coordinator {

class Overcommit : public Preemptor {
 public:
  struct Dependencies {
    const JobStates& states;
    const Planner& planner;
    JobTable& jobs;
    Images& images;
    Moves& moves;
    MigrationTable& migrations;
    EventLog& events;
    control::asio::any_io_executor executor;
  };
  explicit Overcommit(Dependencies deps) : deps_(std::move(deps)), changed_(deps_.executor) {}

  [[nodiscard]] Result<RunPlan> plan_for(const SubmitRequest& request) const override;
  control::Task<Result<std::vector<Displacement>>> preempt_for(SubmitRequest request) override;
  // Returns whether memory is being freed, so that no other job may take it (resumes.h).
  [[nodiscard]] bool busy() const noexcept { return busy_; }

 private:
  using Displaced = std::vector<Displacement>;

  [[nodiscard]] std::vector<Occupant> occupants(std::int32_t below, const std::vector<GpuView>& gpus) const;
  control::Task<Result<Displaced>> preempt_alone(SubmitRequest request);
  // Displaces a job, and records the outcome in `displaced`.
  control::Task<Result<void>> displace(Displacement* displaced, std::string reason);
  control::Task<Result<void>> move(JobId id, Place to, std::string reason);
  control::Task<Result<void>> wait_for_room(SubmitRequest request, std::chrono::seconds max_wait);

  Dependencies deps_;
  Signal changed_;
  bool busy_ = false;
};

}  // namespace ckpt::coordinator
