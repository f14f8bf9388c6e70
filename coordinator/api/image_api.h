// SPDX-License-Identifier: Apache-2.0
// The API calls for images, protection, suspend and restore of jobs with any number of ranks (docs/api.md).
// Threads: one io_context on one thread. Ownership: borrows its dependencies. Errors become JSON
// (api_answers.h).
#pragma once

#include <string>

#include "coordinator/api/named_job.h"
#include "coordinator/gangs/job_images.h"
#include "coordinator/gangs/protections.h"
#include "coordinator/images/image_removals.h"
#include "coordinator/images/operations/image_requests.h"
#include "coordinator/requests/api_section.h"

namespace ckpt::coordinator {

class ImageApi : public ApiSection {
 public:
  struct Dependencies {
    JobTable& jobs;
    const ImageCatalog& catalog;
    const ImageFinder& finder;
    ImageTasks& tasks;
    Protections& protections;
    JobImages& job_images;
    ImageRequests& requests;
    ImageRemovals& removals;
  };
  explicit ImageApi(Dependencies deps) : deps_(deps) {}

  [[nodiscard]] bool handles(const HttpRequest& request) const override;
  control::Task<Result<HttpResponse>> handle(HttpRequest request) override;

 private:
  using Answer = Result<HttpResponse>;

  control::Task<Answer> of_job(HttpRequest request);
  Answer list(const HttpRequest& request) const;
  control::Task<Answer> remove(HttpRequest request);
  control::Task<Answer> task(HttpRequest request);
  control::Task<Answer> protect(HttpRequest request, JobId whole);
  Answer unprotect(const HttpRequest& request, JobId whole);
  control::Task<Answer> snapshot(HttpRequest request, JobId whole);
  control::Task<Answer> restore(HttpRequest request, NamedJob named);
  // Restores a job that is no longer known, from an image that a node lists.
  control::Task<Answer> revive(HttpRequest request);
  [[nodiscard]] Result<Image> find_image(const std::string& id) const;
  [[nodiscard]] Answer show(TaskId id, unsigned status);

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
