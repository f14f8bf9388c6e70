// SPDX-License-Identifier: Apache-2.0
// The HTTP section for cordons and drains: /v1/cordons, /v1/cordon, /v1/uncordon, /v1/drains (docs/api.md).
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive the section.
#pragma once

#include <vector>

#include "coordinator/fleet/gpu_faults.h"
#include "coordinator/health/policy.h"
#include "coordinator/maintenance/drains.h"
#include "coordinator/requests/api_section.h"
#include "libckpt/api/drain.h"

namespace ckpt::coordinator {

class MaintenanceSection : public ApiSection {
 public:
  struct Dependencies {
    NodeTable& nodes;
    CordonTable& cordons;
    PolicyTable& policy;
    const GpuFaults& faults;
    Drains& drains;
    DrainTable& table;
  };
  explicit MaintenanceSection(Dependencies deps) : deps_(deps) {}

  [[nodiscard]] bool handles(const HttpRequest& request) const override;
  control::Task<Result<HttpResponse>> handle(HttpRequest request) override;

 private:
  using Answer = Result<HttpResponse>;
  Answer list_cordons() const;
  Answer cordon(const HttpRequest& request);
  Answer uncordon(const HttpRequest& request);
  [[nodiscard]] std::vector<api::SuspectGpu> suspects_of(const Scope& scope) const;
  Result<std::vector<api::ForgivenGpu>> forgive(const Scope& scope);
  Answer list_drains() const;
  control::Task<Answer> begin(HttpRequest request);
  control::Task<Answer> plan(DrainRequest request);
  Answer cancel(const HttpRequest& request, DrainId id);
  control::Task<Answer> watch(HttpRequest request, DrainId id);
  Answer show(DrainId id, unsigned status) const;

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
