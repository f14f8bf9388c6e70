// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/api_json.h"

#include <fmt/chrono.h>

#include "coordinator/api/migration_views.h"
#include "libckpt/record/document.h"

namespace ckpt::coordinator {

json text_or_null(const std::string& text) {
  return text.empty() ? json() : json(text);
}

std::string time_text(std::int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(seconds), unix_ms % 1000);
}

json pause_ms_json(const std::optional<ExpectedPause>& pause) {
  return pause ? json(pause->ms) : json();
}

json pause_from_json(const std::optional<ExpectedPause>& pause) {
  return pause ? json(pause->is_estimate ? "estimate" : "last_move") : json();
}

json candidates_json(const std::vector<Candidate>& list) {
  json candidates = json::array();
  for (const Candidate& candidate : list)
    candidates.push_back({{"node", candidate.place.node},
                          {"gpu", candidate.place.gpu},
                          {"suitable", candidate.suitable},
                          {"score", candidate.suitable ? json(candidate.score) : json()},
                          {"cause", candidate.suitable ? json() : json(candidate.cause)},
                          {"reasons", candidate.reasons}});
  return candidates;
}

json displaced_json(const std::vector<Displacement>& displaced) {
  json out = json::array();
  for (const Displacement& going : displaced)
    out.push_back({{"job", job_text(going.job)},
                   {"name", going.name},
                   {"priority", going.priority},
                   {"from", to_text(going.from)},
                   {"to", going.to ? json(to_text(*going.to)) : json()}});
  return out;
}

json run_plan_json(const SubmitRequest& request, const RunPlan& run) {
  const MigratePlan& plan = run.placing;
  return {{"dry_run", true},
          {"name", text_or_null(request.spec.name)},
          {"to", plan.to ? json(to_text(*plan.to)) : json()},
          {"gpu_memory_bytes", request.spec.gpu_memory_bytes},
          {"displaced", displaced_json(run.displaced)},
          {"possible", plan.to.has_value()},
          {"reason", text_or_null(plan.reason)},
          {"candidates", candidates_json(plan.candidates)}};
}

json gang_plan_json(const SubmitRequest& request, const GangPlan& plan) {
  json places = json::array();
  std::string to;
  for (const Place& place : plan.places) {
    places.push_back(to_text(place));
    to += (to.empty() ? "" : ", ") + to_text(place);
  }
  return {{"dry_run", true},
          {"name", text_or_null(request.spec.name)},
          {"to", text_or_null(to)},
          {"places", places},
          {"gpu_memory_bytes", request.spec.gpu_memory_bytes},
          {"displaced", json::array()},
          {"possible", !plan.places.empty()},
          {"reason", text_or_null(plan.reason)},
          {"candidates", candidates_json(plan.candidates)}};
}

json plan_json(const Job& job, const MigratePlan& plan, const wire::MigrateOptions& options,
               const NodeTable& nodes) {
  std::optional<ExpectedPause> pause;
  if (plan.to) pause = expected_pause(job, nodes, plan.to->node == job.node());
  return {{"dry_run", true},
          {"job", job_text(job.id)},
          {"from", to_text(job.ranks.front().place)},
          {"to", plan.to ? json(to_text(*plan.to)) : json()},
          // In the pause the driver saves an adopted job's memory: there is nothing to copy before.
          {"mode", record::name_of(job.spec.way == MigrationMode::kAdopted ? wire::MigrateMode::kStopCopy
                                                                           : options.mode)},
          {"options", record::to_answer(options_view(options))},
          {"state_bytes", job.state_bytes()},
          {"expected_pause_ms", pause_ms_json(pause)},
          {"expected_pause_from", pause_from_json(pause)},
          {"possible", plan.to.has_value()},
          {"reason", text_or_null(plan.reason)},
          {"warnings", plan.warnings},
          {"candidates", candidates_json(plan.candidates)}};
}

}  // namespace ckpt::coordinator
