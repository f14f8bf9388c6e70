// SPDX-License-Identifier: Apache-2.0
// Resumes parked jobs automatically once a GPU has the memory, one after the other, in the order of
// resume_order.h. A job that repeatedly failed to resume stays parked until `resume`.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors: a
// failure is retried later, after increasing delays.
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
    const Overcommit& overcommit;  // no job resumes while preemption frees memory for another job
    control::asio::any_io_executor executor;
  };
  explicit Resumes(Dependencies deps) : deps_(std::move(deps)) {}

  // Starts the automatic resumes. Call this once, after the jobs have been loaded.
  void start();

 private:
  control::Task<> run();
  void begin_next();
  control::Task<> resume(JobId id, PlanHints claims);
  void note_failure(JobId id);
  [[nodiscard]] std::vector<ParkedJob> parked() const;

  Dependencies deps_;
  ResumeBackoff backoff_;
  bool resuming_ = false;  // true while a job resumes; its memory must be known before the next job resumes
};

}  // namespace ckpt::coordinator
