// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/maintenance_section.h"

#include <algorithm>

#include "coordinator/api/node_views.h"
#include "coordinator/requests/api_answers.h"
#include "coordinator/requests/body_reader.h"
#include "libckpt/record/document.h"

namespace ckpt::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::int64_t kMaxRevision = std::int64_t{1} << 60;
constexpr std::int64_t kMaxDeadlineMs = std::int64_t{1000} * 3600 * 24 * 30;
constexpr std::int64_t kMaxParallel = 64;

Result<Scope> scope_of(BodyReader& body) {
  const auto place = body.text("place");
  if (!place) return Error(ErrorCode::kInvalidArgument, "Field place must be NODE or NODE:GPU");
  return parse_scope(*place);
}

json cordons_json(const std::vector<Cordon>& cordons) {
  json list = json::array();
  for (const Cordon& cordon : cordons) list.push_back(cordon_json(cordon));
  return list;
}

// Its obstacles are why it is where it is.
bool is_stuck(const DrainJob& job) {
  return job.state == DrainJobState::kWaiting || job.state == DrainJobState::kBlocked;
}

json job_json(const DrainJob& job) {
  return {{"job", job_text(job.job)},
          {"name", job.name},
          {"state", to_string(job.state)},
          {"priority", job.priority},
          {"state_bytes", job.state_bytes},
          {"from", to_text(job.from)},
          {"to", job.to ? json(to_text(*job.to)) : json()},
          {"migration", job.migration == 0 ? json() : json(migration_text(job.migration))},
          {"attempts", job.attempts},
          {"downtime_ms", job.downtime_ms ? json(*job.downtime_ms) : json()},
          {"reason", text_or_null(job.reason)},
          {"obstacles", is_stuck(job) ? json(job.obstacles) : json::array()}};
}

Result<DrainRequest> read_drain(BodyReader& body, bool& dry_run) {
  DrainRequest drain;
  const auto scope = scope_of(body);
  drain.deadline_ms = body.integer("deadline_ms", 1, kMaxDeadlineMs).value_or(drain.deadline_ms);
  drain.parallel =
      static_cast<std::uint32_t>(body.integer("parallel", 1, kMaxParallel).value_or(drain.parallel));
  drain.fallback =
      body.choice("fallback", {"leave", "restore"}).value_or(0) == 1 ? Fallback::kRestore : Fallback::kLeave;
  drain.reason = body.text("reason").value_or("");
  dry_run = body.boolean("dry_run").value_or(false);
  CKPT_TRYV(body.finish());
  if (!scope) return scope.assume_error();
  drain.scope = scope.assume_value();
  return drain;
}

}  // namespace

json cordon_json(const Cordon& cordon) {
  return {{"place", to_text(cordon.scope)},
          {"owner", to_string(cordon.owner)},
          {"reason", text_or_null(cordon.reason)},
          {"since", time_text(cordon.since_ms)}};
}

json drain_json(const Drain& drain) {
  json jobs = json::array();
  for (const DrainJob& job : drain.jobs) jobs.push_back(job_json(job));
  const auto gone = std::count_if(drain.jobs.begin(), drain.jobs.end(),
                                  [](const DrainJob& job) { return is_gone(job.state); });
  return {{"id", drain_text(drain.id)},
          {"revision", drain.revision},
          {"place", to_text(drain.scope)},
          {"open", drain.open()},
          {"parallel", drain.parallel},
          {"fallback", to_string(drain.fallback)},
          {"reason", text_or_null(drain.reason)},
          {"started", time_text(drain.started_ms)},
          {"deadline", time_text(drain.deadline_ms)},
          {"ended", drain.open() ? json() : json(time_text(drain.ended_ms))},
          {"cancelled", drain.cancelled ? json(drain.cancel_reason) : json()},
          {"result", drain.open() ? json() : json(to_string(drain.result))},
          {"exit_code", drain.open() ? json() : json(exit_code_of(drain))},
          {"jobs_gone", gone},
          {"jobs", jobs}};
}

bool MaintenanceSection::takes(const HttpRequest& request) const {
  const std::string& what = request.path[1];
  return what == "cordons" || what == "cordon" || what == "uncordon" || what == "drains";
}

control::Task<Result<HttpResponse>> MaintenanceSection::handle(HttpRequest request) {
  const std::string& what = request.path[1];
  if (request.path.size() == 2) {
    if (what == "cordons" && is_get(request)) co_return list_cordons();
    if (what == "cordon" && is_post(request)) co_return cordon(request);
    if (what == "uncordon" && is_post(request)) co_return uncordon(request);
    if (what == "drains" && is_get(request)) co_return list_drains();
    if (what == "drains" && is_post(request)) co_return co_await begin(std::move(request));
  }
  if (what != "drains" || request.path.size() < 3) co_return no_such_call(request);
  const std::optional<DrainId> id = meant(parts_.table.all(), parse_drain_id(request.path[2]));
  if (!id) co_return Error(ErrorCode::kNotFound, "There is no drain \"" + request.path[2] + "\"");
  if (request.path.size() == 3 && is_get(request)) co_return show(*id, 200);
  if (request.path.size() == 4 && request.path[3] == "watch" && is_get(request))
    co_return co_await watch(std::move(request), *id);
  if (request.path.size() == 4 && request.path[3] == "cancel" && is_post(request))
    co_return cancel(request, *id);
  co_return no_such_call(request);
}

MaintenanceSection::Answer MaintenanceSection::list_cordons() const {
  return to_response(200, cordons_json(parts_.cordons.all()));
}

MaintenanceSection::Answer MaintenanceSection::cordon(const HttpRequest& request) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  const auto scope = scope_of(body);
  const std::string reason = body.text("reason").value_or("");
  CKPT_TRYV(body.finish());
  if (!scope) return scope.assume_error();
  CKPT_TRYV(check_known(scope.assume_value(), parts_.nodes));
  CKPT_TRYV(parts_.cordons.set(scope.assume_value(), CordonOwner::kOperator, reason));
  return to_response(200, cordon_json(*parts_.cordons.find(scope.assume_value(), CordonOwner::kOperator)));
}

// GPUs of the scope with a finding of the last minutes: they take no job yet.
json MaintenanceSection::suspects_of(const Scope& scope) const {
  json suspects = json::array();
  const Node* node = parts_.nodes.find(scope.node);
  for (const wire::GpuInfo& gpu : node == nullptr ? std::vector<wire::GpuInfo>() : node->gpus) {
    const Place place(scope.node, gpu.index);
    const auto fault = scope.covers(place) ? parts_.faults.find(place) : std::nullopt;
    if (!fault || fault->closed_until_ms == 0 || fault->cordoned) continue;
    json suspect = record::to_answer(fault_view(*fault));
    suspect["place"] = to_text(place);
    suspects.push_back(std::move(suspect));
  }
  return suspects;
}

// By the operator's word. Those that had a finding.
Result<json> MaintenanceSection::forgive(const Scope& scope) {
  json forgiven = json::array();
  const Node* node = parts_.nodes.find(scope.node);
  for (const wire::GpuInfo& gpu : node == nullptr ? std::vector<wire::GpuInfo>() : node->gpus) {
    const Place place(scope.node, gpu.index);
    const auto fault = scope.covers(place) ? parts_.faults.find(place) : std::nullopt;
    if (!fault) continue;
    CKPT_TRYV(parts_.policy.forgive(place));
    forgiven.push_back({{"place", to_text(place)}, {"reason", text_or_null(fault->reason)}});
  }
  return forgiven;
}

// The answer names the owners of the cordons that it removed, the cordons that are left, and the GPUs that take no
// job yet for a finding.
MaintenanceSection::Answer MaintenanceSection::uncordon(const HttpRequest& request) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  const auto read = scope_of(body);
  const bool forgives = body.boolean("forgive").value_or(false);
  CKPT_TRYV(body.finish());
  if (!read) return read.assume_error();
  const Scope& scope = read.assume_value();
  CKPT_TRYV(check_known(scope, parts_.nodes));
  json forgiven = json::array();
  if (forgives) {
    CKPT_TRY(those, forgive(scope));
    forgiven = std::move(those);
  }
  CKPT_TRY(cleared, parts_.cordons.clear(scope));
  parts_.drains.cancel_of(scope, to_text(scope) + " was uncordoned");
  std::vector<Cordon> left;
  for (const Cordon& cordon : parts_.cordons.of_node(scope.node)) {
    const bool concerns = !scope.gpu || cordon.scope.covers(Place(scope.node, *scope.gpu));
    if (concerns) left.push_back(cordon);
  }
  return to_response(200, {{"place", to_text(scope)},
                           {"cleared", cordons_json(cleared)},
                           {"left", cordons_json(left)},
                           {"forgiven", std::move(forgiven)},
                           {"suspect", suspects_of(scope)}});
}

MaintenanceSection::Answer MaintenanceSection::list_drains() const {
  json list = json::array();
  const auto& all = parts_.table.all();
  for (auto at = all.rbegin(); at != all.rend(); ++at) list.push_back(drain_json(at->second));
  return to_response(200, list);
}

control::Task<MaintenanceSection::Answer> MaintenanceSection::begin(HttpRequest request) {
  CKPT_CO_TRY(body, BodyReader::parse(request.body));
  bool dry_run = false;
  CKPT_CO_TRY(wanted, read_drain(body, dry_run));
  if (dry_run) co_return co_await plan(std::move(wanted));
  CKPT_CO_TRY(begun, parts_.drains.begin(wanted));
  json shown = drain_json(*parts_.table.find(begun.id));
  shown["joined"] = begun.joined;
  co_return to_response(202, shown);
}

control::Task<MaintenanceSection::Answer> MaintenanceSection::plan(DrainRequest request) {
  CKPT_CO_TRY(prospects, co_await parts_.drains.dry_run(request));
  json jobs = json::array();
  bool all = true;
  for (const Drains::Prospect& prospect : prospects) {
    json job = job_json(prospect.job);
    for (const char* key : {"state", "migration", "attempts", "downtime_ms"}) job.erase(key);
    const bool possible = prospect.job.to.has_value();
    job["possible"] = possible;
    job["passing"] = prospect.passing;
    job["warning"] = text_or_null(prospect.warning);
    job["expected_pause_ms"] = pause_ms_json(prospect.pause);
    job["expected_pause_from"] = pause_from_json(prospect.pause);
    jobs.push_back(std::move(job));
    all = all && possible;
  }
  co_return to_response(200, {{"dry_run", true},
                              {"place", to_text(request.scope)},
                              {"parallel", request.parallel},
                              {"possible", all},
                              {"jobs", jobs}});
}

MaintenanceSection::Answer MaintenanceSection::cancel(const HttpRequest& request, DrainId id) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  const std::string reason = body.text("reason").value_or("");
  CKPT_TRYV(body.finish());
  CKPT_TRYV(parts_.drains.cancel(id, reason.empty() ? "cancelled" : reason));
  return show(id, 202);
}

control::Task<MaintenanceSection::Answer> MaintenanceSection::watch(HttpRequest request, DrainId id) {
  CKPT_CO_TRY(since, query_number(request, "since", 0, kMaxRevision));
  CKPT_CO_TRY(timeout, query_number(request, "timeout_ms", kDefaultWaitMs, kMaxWaitMs));
  const auto deadline = steady_clock::now() + milliseconds(timeout);
  while (true) {
    const Drain* drain = parts_.table.find(id);
    const bool is_new =
        drain == nullptr || !drain->open() || drain->revision > static_cast<std::uint64_t>(since);
    if (is_new || steady_clock::now() >= deadline) co_return show(id, 200);
    co_await parts_.table.changed().wait_until(deadline);
  }
}

MaintenanceSection::Answer MaintenanceSection::show(DrainId id, unsigned status) const {
  const Drain* drain = parts_.table.find(id);
  if (drain == nullptr) return Error(ErrorCode::kNotFound, "There is no drain " + drain_text(id));
  return to_response(status, drain_json(*drain));
}

}  // namespace ckpt::coordinator
