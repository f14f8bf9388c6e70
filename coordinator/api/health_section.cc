// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/health_section.h"

#include "coordinator/requests/api_answers.h"
#include "coordinator/requests/body_reader.h"

namespace ckpt::coordinator {
namespace {

constexpr std::int64_t kMaxShown = 5'000;

json shown_text(const std::string& text) {
  return text.empty() ? json() : json(text);
}
json shown_time(std::int64_t unix_ms) {
  return unix_ms == 0 ? json() : json(time_text(unix_ms));
}

json finding_json(const Finding& finding) {
  const wire::HealthFinding& reported = finding.reported;
  json jobs = json::array();
  for (const wire::JobVerdict& verdict : reported.jobs)
    jobs.push_back({{"job", job_text(verdict.job)},
                    {"outcome", record::name_of(verdict.outcome)},
                    {"reason", shown_text(verdict.reason)}});
  return {{"node", finding.node},
          {"number", reported.number},
          {"time", time_text(reported.time_ms)},
          {"gpu", reported.gpu},
          {"gpu_uuid", shown_text(reported.gpu_uuid)},
          {"source", reported.source},
          {"xid", reported.xid == 0 ? json() : json(reported.xid)},
          {"recovery", reported.recovery},
          {"cordon", reported.cordon},
          {"paused", finding.paused},
          {"urgent", reported.urgent},
          {"leave_node", reported.leave_node},
          {"outcome", record::name_of(reported.outcome)},
          {"reason", shown_text(reported.reason)},
          {"jobs", jobs}};
}

json evacuation_json(const Evacuation& e) {
  return {{"id", evacuation_text(e.id)},
          {"job", job_text(e.job)},
          {"job_name", e.job_name},
          {"state", to_string(e.state)},
          {"open", e.open()},
          {"outcome", record::name_of(e.outcome)},
          {"urgent", e.urgent},
          {"from", to_text(e.from)},
          {"to", e.to ? json(to_text(*e.to)) : json()},
          {"migration", e.migration == 0 ? json() : json(migration_text(e.migration))},
          {"attempts", e.started_ms.size()},
          {"lost_ms", e.lost_ms ? json(*e.lost_ms) : json()},
          {"created", time_text(e.created_ms)},
          {"ended", shown_time(e.ended_ms)},
          {"reason", shown_text(e.reason)},
          {"note", shown_text(e.note)}};
}

}  // namespace

bool HealthSection::takes(const HttpRequest& request) const {
  return request.path[1] == "health" || request.path[1] == "policy";
}

control::Task<Result<HttpResponse>> HealthSection::handle(HttpRequest request) {
  const auto& path = request.path;
  if (path[1] == "health" && path.size() == 2 && is_get(request)) co_return show(request);
  if (path[1] == "policy" && path.size() == 2 && is_get(request)) co_return to_response(200, policy_json());
  if (path[1] == "policy" && path.size() == 3 && is_post(request)) {
    if (path[2] == "pause" || path[2] == "resume") co_return policy(request, path[2] == "pause");
    if (path[2] == "reset-breaker") co_return reset_breaker(request);
  }
  co_return no_such_call(request);
}

json HealthSection::policy_json() const {
  const Breaker& breaker = parts_.policy.breaker();
  const EvacuationLimits& limits = parts_.evacuations.limits();
  json paused = json::array();
  for (const auto& [node, is_paused] : parts_.policy.nodes())
    if (is_paused) paused.push_back(node);
  return {{"paused", paused},
          {"breaker",
           {{"open", breaker.open},
            {"since", shown_time(breaker.since_ms)},
            {"reason", shown_text(breaker.reason)},
            {"recent", parts_.evacuations.recent()},
            {"limit", limits.breaker_count},
            {"window_ms", limits.breaker_window_ms}}},
          {"attempts_per_job", limits.attempts_per_job},
          {"parallel", limits.parallel}};
}

HealthSection::Answer HealthSection::show(const HttpRequest& request) const {
  CKPT_TRY(limit, query_number(request, "limit", 200, kMaxShown));
  json findings = json::array();
  const auto& found = parts_.health.all();
  for (auto at = found.rbegin(); at != found.rend() && std::ssize(findings) < limit; ++at)
    findings.push_back(finding_json(*at));
  json evacuations = json::array();
  const auto& moved = parts_.table.all();
  for (auto at = moved.rbegin(); at != moved.rend() && std::ssize(evacuations) < limit; ++at)
    evacuations.push_back(evacuation_json(at->second));
  return to_response(200, {{"policy", policy_json()}, {"evacuations", evacuations}, {"findings", findings}});
}

HealthSection::Answer HealthSection::policy(const HttpRequest& request, bool pause) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  const std::string node = body.text("node").value_or("");
  const std::string reason = pause ? body.text("reason").value_or("") : "";
  CKPT_TRYV(body.finish());
  CKPT_TRYV(check_known(Scope(node, std::nullopt), parts_.nodes));
  CKPT_TRYV(pause ? parts_.policy.pause(node, reason) : parts_.policy.resume(node));
  return to_response(200, policy_json());
}

HealthSection::Answer HealthSection::reset_breaker(const HttpRequest& request) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  CKPT_TRYV(body.finish());
  CKPT_TRYV(parts_.policy.reset_breaker());
  return to_response(200, policy_json());
}

}  // namespace ckpt::coordinator
