// SPDX-License-Identifier: Apache-2.0
// The calls of images, protection, suspend and restore (docs/api.md).
// Threads: one io_context on one thread. Ownership: borrows the tables. Errors become JSON (api_answers.h).
#pragma once

#include "coordinator/images/image_table.h"
#include "coordinator/requests/api_section.h"

namespace ckpt::coordinator {

class ImageApi : public ApiSection {
 public:
  ImageApi(ImageTable& images, JobTable& jobs) : images_(images), jobs_(jobs) {}

  [[nodiscard]] bool takes(const HttpRequest& request) const override;
  control::Task<Result<HttpResponse>> handle(HttpRequest request) override;

 private:
  using Answer = Result<HttpResponse>;

  control::Task<Answer> of_job(HttpRequest request);
  Answer list(const HttpRequest& request) const;
  control::Task<Answer> remove(HttpRequest request);
  control::Task<Answer> task(HttpRequest request);
  Answer protect(const HttpRequest& request, JobId id);
  Answer unprotect(const HttpRequest& request, JobId id);
  control::Task<Answer> snapshot(HttpRequest request, JobId id);
  control::Task<Answer> restore(HttpRequest request, JobId id);
  [[nodiscard]] Answer show(TaskId id, unsigned status);

  ImageTable& images_;
  JobTable& jobs_;
};

}  // namespace ckpt::coordinator
