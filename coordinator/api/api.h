// SPDX-License-Identifier: Apache-2.0
// The HTTP API of docs/api.md: checks the token, finds the call, reads its body, asks the service, shows the
// answer.
// Threads: one io_context on one thread. Ownership: borrows everything, which outlives the server. Errors
// become JSON.
#pragma once

#include <vector>

#include "coordinator/api/api_json.h"
#include "coordinator/operations/log_reader.h"
#include "coordinator/operations/moves.h"
#include "coordinator/operations/service.h"
#include "coordinator/requests/api_section.h"
#include "coordinator/requests/http.h"

namespace ckpt::coordinator {

class Api {
 public:
  struct Parts {
    Service& service;
    Moves& moves;
    const Planner& planner;
    const JobStates& states;
    LogReader& logs;
    NodeTable& nodes;
    JobTable& jobs;
    MigrationTable& migrations;
    MigrationRunner& migration_runner;
    EventLog& events;
    const CordonTable& cordons;
    const PolicyTable& policy;
    std::string token;
    std::string agent_address;
    std::int64_t started_ms = 0;
    std::vector<ApiSection*> sections = {};
  };
  explicit Api(Parts parts) : parts_(std::move(parts)) {}

  control::Task<HttpResponse> handle(HttpRequest request);
  static HttpResponse refuse(unsigned status, const std::string& why);
  // Whether the call may be answered only after news: a long poll.
  static bool waits(const HttpRequest& request);

 private:
  using Answer = Result<HttpResponse>;

  control::Task<Answer> route(HttpRequest request);
  control::Task<Answer> route_jobs(HttpRequest request);
  control::Task<Answer> route_migrations(HttpRequest request);
  Answer list(const HttpRequest& request);
  Answer list_jobs(const HttpRequest& request);
  [[nodiscard]] Answer list_migrations(const HttpRequest& request) const;
  json status() const;

  control::Task<Answer> submit(HttpRequest request);
  control::Task<Answer> adopt(HttpRequest request);
  control::Task<Answer> wait(HttpRequest request, JobId id);
  control::Task<Answer> logs(HttpRequest request, JobId id);
  control::Task<Answer> events(HttpRequest request);
  Answer stop(const HttpRequest& request, Job& job);
  control::Task<Answer> migrate(HttpRequest request, JobId id);

  control::Task<Answer> watch(HttpRequest request, MigrationId id);
  control::Task<Answer> set_limits(HttpRequest request, MigrationId id);
  control::Task<Answer> abort(HttpRequest request, MigrationId id);
  control::Task<Answer> resolve(HttpRequest request, MigrationId id);
  [[nodiscard]] Answer show(MigrationId id, unsigned status) const;

  Parts parts_;
};

}  // namespace ckpt::coordinator
