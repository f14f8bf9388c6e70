// SPDX-License-Identifier: Apache-2.0
// The section for /v1/migrations: list, show, watch, limit, abort and resolve migrations.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive the section.
// Errors become JSON (api_answers.h).
#pragma once

#include "coordinator/migration/migration_runner.h"
#include "coordinator/requests/api_section.h"

namespace ckpt::coordinator {

class MigrationSection : public ApiSection {
 public:
  MigrationSection(MigrationTable& table, MigrationRunner& runner) : table_(table), runner_(runner) {}

  [[nodiscard]] bool handles(const HttpRequest& request) const override;
  control::Task<Result<HttpResponse>> handle(HttpRequest request) override;

 private:
  using Answer = Result<HttpResponse>;

  [[nodiscard]] Answer list(const HttpRequest& request) const;
  [[nodiscard]] Answer show(MigrationId id, unsigned status) const;
  [[nodiscard]] std::vector<std::string> moved_with(const Migration& rank) const;
  control::Task<Answer> watch(HttpRequest request, MigrationId id);
  control::Task<Answer> set_limits(HttpRequest request, MigrationId id);
  control::Task<Answer> abort(HttpRequest request, MigrationId id);
  control::Task<Answer> resolve(HttpRequest request, MigrationId id);

  MigrationTable& table_;
  MigrationRunner& runner_;
};

}  // namespace ckpt::coordinator
