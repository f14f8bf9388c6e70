// SPDX-License-Identifier: Apache-2.0
// Parked jobs resume by themselves once a GPU has the memory: one after the other, in the order of
// resume_order.h. One that could not be resumed a few times stays parked until `resume`.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors: a
// failure is tried again later, each time after a longer while.
#pragma once

#include <vector>

#include "coordinator/images/operations/image_requests.h"
#include "coordinator/maintenance/overcommit.h"
#include "coordinator/policies/resumes/resume_backoff.h"
#include "coordinator/policies/resumes/resume_order.h"

namespace ckpt::coordinator {

class Resumes {
 public:
  struct Dependencies {
    EventLog& events;
    JobTable& jobs;
    JobRunner& job_runner;
    const Planner& planner;
    const ImageFinder& images;
    ImageRequests& requests;
    const Overcommit& overcommit;  // while it frees memory for a job none resumes
    control::asio::any_io_executor executor;
  };
  explicit Resumes(Dependencies deps) : deps_(std::move(deps)) {}

  // Once, after the jobs have been loaded.
  void start();

 private:
  control::Task<> run();
  void begin_next();
  control::Task<> resume(JobId id, PlanHints claims);
  void note_failure(JobId id);
  [[nodiscard]] std::vector<ParkedJob> resting() const;

  Dependencies deps_;
  ResumeBackoff backoff_;
  bool resuming_ = false;  // one at a time: its memory must be known before the next
};

}  // namespace ckpt::coordinator
