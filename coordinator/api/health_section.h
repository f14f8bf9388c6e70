// SPDX-License-Identifier: Apache-2.0
// The HTTP section for findings, evacuations and the operator's settings for both: /v1/health, /v1/policy
// (docs/api.md).
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive the section.
#pragma once

#include "coordinator/health/evacuations.h"
#include "coordinator/requests/api_section.h"

namespace ckpt::coordinator {

class HealthSection : public ApiSection {
 public:
  struct Dependencies {
    NodeTable& nodes;
    PolicyTable& policy;
    HealthTable& health;
    Evacuations& evacuations;
    const EvacuationTable& table;
  };
  explicit HealthSection(Dependencies deps) : deps_(deps) {}

  [[nodiscard]] bool handles(const HttpRequest& request) const override;
  control::Task<Result<HttpResponse>> handle(HttpRequest request) override;

 private:
  using Answer = Result<HttpResponse>;
  Answer show(const HttpRequest& request) const;
  Answer policy(const HttpRequest& request, bool pause);
  Answer reset_breaker(const HttpRequest& request);
  [[nodiscard]] HttpResponse show_policy() const;

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
