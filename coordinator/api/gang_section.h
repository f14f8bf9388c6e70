// SPDX-License-Identifier: Apache-2.0
// /v1/jobs/JOB of a job of several ranks: show, wait, logs of a rank, stop, remove, migrate, and its images. Asked before JobSection. All else
// is refused there: it has no job of that name.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors become
// JSON (api_answers.h).
#pragma once

#include "coordinator/gangs/gang_images.h"
#include "coordinator/gangs/gang_protections.h"
#include "coordinator/gangs/gang_restores.h"
#include "coordinator/gangs/moves/gang_moves.h"
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
    GangProtections& protections;
    GangMoves& moves;
  };
  explicit GangSection(Dependencies deps) : deps_(deps) {}

  [[nodiscard]] bool takes(const HttpRequest& request) const override;
  control::Task<Result<HttpResponse>> handle(HttpRequest request) override;

 private:
  using Answer = Result<HttpResponse>;

  control::Task<Answer> wait(HttpRequest request, JobId id);
  // The output of one rank: the query's `rank`, by default 0.
  control::Task<Answer> logs(HttpRequest request, Gang gang);
  control::Task<Answer> store(HttpRequest request, JobId id);
  control::Task<Answer> restore(HttpRequest request, JobId id);
  control::Task<Answer> protect(HttpRequest request, JobId id);
  // `rank`: that one alone, as the request names it.
  control::Task<Answer> migrate(HttpRequest request, JobId id, std::optional<std::uint32_t> rank);
  Answer show_task(TaskId id);
  Answer stop(const HttpRequest& request, const Gang& gang);
  Answer remove(const Gang& gang);

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
