// SPDX-License-Identifier: Apache-2.0
// `run --preempt`: parks jobs of lower priority so that one which does not fit does. They come back by
// themselves when their memory is free again (Images::park). One request at a time, so that two do not count
// on the same memory.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors: kRefused:
// parking all jobs that may be parked would not help, or one could not be parked (those before it are).
// kTimedOut: their memory did not become free.
#pragma once

#include "coordinator/fleet/jobs.h"
#include "coordinator/images/images.h"
#include "coordinator/operations/preemptor.h"
#include "coordinator/placement/preemption.h"

namespace ckpt::coordinator {

class Overcommit : public Preemptor {
 public:
  struct Parts {
    const JobStates& states;
    const Planner& planner;
    JobTable& jobs;
    Images& images;
    EventLog& events;
    control::asio::any_io_executor executor;
  };
  explicit Overcommit(Parts parts) : parts_(std::move(parts)), changed_(parts_.executor) {}

  control::Task<Result<void>> preempt_for(SubmitRequest request) override;
  // Memory is being freed: no other job may take it (resumes.h).
  [[nodiscard]] bool busy() const noexcept { return busy_; }

 private:
  [[nodiscard]] std::vector<Occupant> occupants() const;
  control::Task<Result<void>> preempt_alone(SubmitRequest request);
  control::Task<Result<void>> wait_for_room(SubmitRequest request, std::chrono::seconds most);

  Parts parts_;
  Signal changed_;
  bool busy_ = false;
};

}  // namespace ckpt::coordinator
