// SPDX-License-Identifier: Apache-2.0
// The section for /v1/status, /v1/nodes, /v1/gpus and /v1/events.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive the section.
// Errors become JSON (api_answers.h).
#pragma once

#include <string>

#include "coordinator/fleet/cordons.h"
#include "coordinator/fleet/gpu_faults.h"
#include "coordinator/fleet/jobs.h"
#include "coordinator/fleet/nodes.h"
#include "coordinator/health/policy.h"
#include "coordinator/migration/migration_table.h"
#include "coordinator/operations/planner.h"
#include "coordinator/requests/api_section.h"
#include "coordinator/requests/json.h"
#include "coordinator/state/event_log.h"
#include "libckpt/api/site.h"

namespace ckpt::coordinator {

class ClusterSection : public ApiSection {
 public:
  struct Dependencies {
    const NodeTable& nodes;
    JobTable& jobs;
    const MigrationTable& migrations;
    EventLog& events;
    const CordonTable& cordons;
    const PolicyTable& policy;
    const Planner& planner;
    const GpuFaults& faults;
    std::string agent_address;
    std::int64_t started_ms = 0;
  };
  explicit ClusterSection(Dependencies deps) : deps_(std::move(deps)) {}

  [[nodiscard]] bool handles(const HttpRequest& request) const override;
  control::Task<Result<HttpResponse>> handle(HttpRequest request) override;

 private:
  [[nodiscard]] json nodes() const;
  [[nodiscard]] json gpus() const;
  [[nodiscard]] api::Status status() const;
  control::Task<Result<HttpResponse>> events(HttpRequest request);
  Result<void> read_event_filter(const HttpRequest& request, EventQuery& query) const;

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
