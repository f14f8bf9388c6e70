// SPDX-License-Identifier: Apache-2.0
// The section for /v1/jobs and /v1/adopt: submit, list, show, wait for, stop, remove and migrate jobs, read
// their logs, and adopt processes. A job has one or several ranks. A call may also name one of several ranks
// (named_job.h).
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive the section.
// Errors become JSON (api_answers.h).
#pragma once

#include "coordinator/api/named_job.h"
#include "coordinator/gangs/moves/job_moves.h"
#include "coordinator/operations/service.h"
#include "coordinator/output/log_reader.h"
#include "coordinator/requests/api_section.h"

namespace ckpt::coordinator {

class JobSection : public ApiSection {
 public:
  struct Dependencies {
    Service& service;
    JobMoves& moves;
    const JobStates& states;
    LogReader& logs;
    const NodeTable& nodes;
    JobTable& jobs;
    const MigrationTable& migrations;
  };
  explicit JobSection(Dependencies deps) : deps_(deps) {}

  [[nodiscard]] bool handles(const HttpRequest& request) const override;
  control::Task<Result<HttpResponse>> handle(HttpRequest request) override;

 private:
  using Answer = Result<HttpResponse>;

  Answer list(const HttpRequest& request);
  control::Task<Answer> submit(HttpRequest request);
  control::Task<Answer> adopt(HttpRequest request);
  control::Task<Answer> handle_named(HttpRequest request, NamedJob named);
  control::Task<Answer> wait(HttpRequest request, JobId id);
  control::Task<Answer> logs(HttpRequest request, WholeJob job);
  control::Task<Answer> obstacles(HttpRequest request, WholeJob job);
  control::Task<Answer> migrate(HttpRequest request, NamedJob named);
  Answer show(const WholeJob& job);
  Answer stop(const HttpRequest& request, const WholeJob& job);
  Answer remove(const WholeJob& job);
  // Returns an answer with the job in the same form as in a list of jobs.
  [[nodiscard]] Answer answer_with(unsigned status, const WholeJob& job) const;

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
