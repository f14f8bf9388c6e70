// SPDX-License-Identifier: Apache-2.0
// The section for /v1/jobs and /v1/adopt: submit, list, show, wait for, stop and migrate jobs, read their
// logs, and adopt processes.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive the section.
// Errors become JSON (api_answers.h).
#pragma once

#include "coordinator/operations/moves.h"
#include "coordinator/operations/service.h"
#include "coordinator/output/log_reader.h"
#include "coordinator/requests/api_section.h"

namespace ckpt::coordinator {

class JobSection : public ApiSection {
 public:
  struct Dependencies {
    Service& service;
    Moves& moves;
    const Planner& planner;
    const JobStates& states;
    LogReader& logs;
    const NodeTable& nodes;
    JobTable& jobs;
    const MigrationTable& migrations;
  };
  explicit JobSection(Dependencies deps) : deps_(deps) {}

  [[nodiscard]] bool takes(const HttpRequest& request) const override;
  control::Task<Result<HttpResponse>> handle(HttpRequest request) override;

 private:
  using Answer = Result<HttpResponse>;

  Answer list(const HttpRequest& request);
  control::Task<Answer> submit(HttpRequest request);
  control::Task<Answer> adopt(HttpRequest request);
  control::Task<Answer> wait(HttpRequest request, JobId id);
  control::Task<Answer> logs(HttpRequest request, JobId id);
  Answer stop(const HttpRequest& request, Job& job);
  control::Task<Answer> obstacles(JobId id);
  control::Task<Answer> migrate(HttpRequest request, JobId id);

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
