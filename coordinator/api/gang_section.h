// SPDX-License-Identifier: Apache-2.0
// The section for /v1/jobs/JOB where JOB has several ranks. Calls: show, wait, logs of a rank, stop, remove,
// migrate, and image operations. This section takes precedence over JobSection. JobSection refuses all other
// calls because it has no job with the gang's name.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive the section.
// Errors become JSON (api_answers.h).
#pragma once

#include "coordinator/gangs/gang_images.h"
#include "coordinator/gangs/gang_restores.h"
#include "coordinator/gangs/moves/gang_moves.h"
#include "coordinator/gangs/protections.h"
#include "coordinator/operations/service.h"
#include "coordinator/output/log_reader.h"
#include "coordinator/requests/api_section.h"

namespace ckpt::coordinator {

class GangSection : public ApiSection {
 public:
  struct Dependencies {
    Service& service;
    const JobStates& states;
    ApiSection& job_section;
    JobTable& jobs;
    const ImageCatalog& catalog;
    ImageTasks& tasks;
    GangImages& images;
    GangRestores& restores;
    Protections& protections;
    GangMoves& moves;
  };
  explicit GangSection(Dependencies deps) : deps_(deps) {}

  [[nodiscard]] bool takes(const HttpRequest& request) const override;
  control::Task<Result<HttpResponse>> handle(HttpRequest request) override;

 private:
  using Answer = Result<HttpResponse>;

  control::Task<Answer> wait(HttpRequest request, JobId id);
  // Returns the output of one rank: the query parameter `rank`, by default 0.
  control::Task<Answer> logs(HttpRequest request, WholeJob gang);
  control::Task<Answer> store(HttpRequest request, JobId id);
  control::Task<Answer> restore(HttpRequest request, JobId id);
  control::Task<Answer> protect(HttpRequest request, JobId id);
  // Begins a migration of the gang. If `rank` is set, only the rank that the request names is moved.
  control::Task<Answer> migrate(HttpRequest request, JobId id, std::optional<std::uint32_t> rank);
  Answer show_task(TaskId id);
  Answer stop(const HttpRequest& request, const WholeJob& gang);
  Answer remove(const WholeJob& gang);

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
