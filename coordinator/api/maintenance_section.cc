// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/maintenance_section.h"

#include "coordinator/api/maintenance_views.h"
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
  if (!place) return Error(ErrorCode::kInvalidArgument, "Field \"place\" must be NODE or NODE:GPU");
  return parse_scope(*place);
}

Result<DrainRequest> read_drain(BodyReader& body, bool& dry_run) {
  DrainRequest drain;
  const auto scope = scope_of(body);
  drain.deadline_ms = body.integer("deadline_ms", 1, kMaxDeadlineMs).value_or(drain.deadline_ms);
  drain.parallel =
      static_cast<std::uint32_t>(body.integer("parallel", 1, kMaxParallel).value_or(drain.parallel));
  drain.fallback = body.named<Fallback>("fallback").value_or(Fallback::kLeave);
  drain.reason = body.text("reason").value_or("");
  dry_run = body.boolean("dry_run").value_or(false);
  CKPT_TRYV(body.finish());
  if (!scope) return scope.error();
  drain.scope = *scope;
  return drain;
}

}  // namespace

bool MaintenanceSection::handles(const HttpRequest& request) const {
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
  const std::optional<DrainId> id = meant(deps_.table.all(), parse_drain_id(request.path[2]));
  if (!id) co_return Error(ErrorCode::kNotFound, "There is no drain \"" + request.path[2] + "\"");
  if (request.path.size() == 3 && is_get(request)) co_return show(*id, 200);
  if (request.path.size() == 4 && request.path[3] == "watch" && is_get(request))
    co_return co_await watch(std::move(request), *id);
  if (request.path.size() == 4 && request.path[3] == "cancel" && is_post(request))
    co_return cancel(request, *id);
  co_return no_such_call(request);
}

MaintenanceSection::Answer MaintenanceSection::list_cordons() const {
  json list = json::array();
  for (const Cordon& cordon : deps_.cordons.all()) list.push_back(record::to_answer(cordon_view(cordon)));
  return to_response(200, list);
}

MaintenanceSection::Answer MaintenanceSection::cordon(const HttpRequest& request) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  const auto scope = scope_of(body);
  const std::string reason = body.text("reason").value_or("");
  CKPT_TRYV(body.finish());
  if (!scope) return scope.error();
  CKPT_TRYV(check_known(*scope, deps_.nodes));
  CKPT_TRYV(deps_.cordons.set(*scope, CordonOwner::kOperator, reason));
  const Cordon& cordon = *deps_.cordons.find(*scope, CordonOwner::kOperator);
  return to_response(200, record::to_answer(cordon_view(cordon)));
}

// Returns the GPUs of the scope that had a finding in the last minutes. Such GPUs accept no job yet.
std::vector<api::SuspectGpu> MaintenanceSection::suspects_of(const Scope& scope) const {
  std::vector<api::SuspectGpu> suspects;
  const Node* node = deps_.nodes.find(scope.node);
  for (const wire::GpuInfo& gpu : node == nullptr ? std::vector<wire::GpuInfo>() : node->gpus) {
    const Place place(scope.node, gpu.index);
    const auto fault = scope.covers(place) ? deps_.faults.find(place) : std::nullopt;
    if (!fault || fault->closed_until_ms == 0 || fault->cordoned) continue;
    suspects.push_back(suspect_view(place, *fault));
  }
  return suspects;
}

// Clears the findings of GPUs in the scope because the operator requested it. Returns the GPUs that had a
// finding.
Result<std::vector<api::ForgivenGpu>> MaintenanceSection::forgive(const Scope& scope) {
  std::vector<api::ForgivenGpu> forgiven;
  const Node* node = deps_.nodes.find(scope.node);
  for (const wire::GpuInfo& gpu : node == nullptr ? std::vector<wire::GpuInfo>() : node->gpus) {
    const Place place(scope.node, gpu.index);
    const auto fault = scope.covers(place) ? deps_.faults.find(place) : std::nullopt;
    if (!fault) continue;
    CKPT_TRYV(deps_.policy.forgive(place));
    forgiven.push_back(forgiven_view(place, *fault));
  }
  return forgiven;
}

MaintenanceSection::Answer MaintenanceSection::uncordon(const HttpRequest& request) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  const auto read = scope_of(body);
  const bool forgives = body.boolean("forgive").value_or(false);
  CKPT_TRYV(body.finish());
  if (!read) return read.error();
  const Scope& scope = *read;
  CKPT_TRYV(check_known(scope, deps_.nodes));
  api::Uncordoned answer{.place = to_text(scope)};
  if (forgives) {
    CKPT_TRY(forgiven, forgive(scope));
    answer.forgiven = std::move(forgiven);
  }
  CKPT_TRY(cleared, deps_.cordons.clear(scope));
  answer.cleared = cordons_view(cleared);
  deps_.drains.cancel_of(scope, to_text(scope) + " was uncordoned");
  for (const Cordon& cordon : deps_.cordons.of_node(scope.node)) {
    const bool concerns = !scope.gpu || cordon.scope.covers(Place(scope.node, *scope.gpu));
    if (concerns) answer.left.push_back(cordon_view(cordon));
  }
  answer.suspect = suspects_of(scope);
  return to_response(200, record::to_answer(answer));
}

MaintenanceSection::Answer MaintenanceSection::list_drains() const {
  json list = json::array();
  const auto& all = deps_.table.all();
  for (auto at = all.rbegin(); at != all.rend(); ++at)
    list.push_back(record::to_answer(drain_view(at->second)));
  return to_response(200, list);
}

control::Task<MaintenanceSection::Answer> MaintenanceSection::begin(HttpRequest request) {
  CKPT_CO_TRY(body, BodyReader::parse(request.body));
  bool dry_run = false;
  CKPT_CO_TRY(wanted, read_drain(body, dry_run));
  if (dry_run) co_return co_await plan(std::move(wanted));
  CKPT_CO_TRY(begun, deps_.drains.begin(wanted));
  const api::BegunDrain view{.drain = drain_view(*deps_.table.find(begun.id)), .joined = begun.joined};
  co_return to_response(202, record::to_answer(view));
}

control::Task<MaintenanceSection::Answer> MaintenanceSection::plan(DrainRequest request) {
  CKPT_CO_TRY(prospects, co_await deps_.drains.dry_run(request));
  co_return to_response(200, record::to_answer(drain_plan_view(request, prospects)));
}

MaintenanceSection::Answer MaintenanceSection::cancel(const HttpRequest& request, DrainId id) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  const std::string reason = body.text("reason").value_or("");
  CKPT_TRYV(body.finish());
  CKPT_TRYV(deps_.drains.cancel(id, reason.empty() ? "cancelled" : reason));
  return show(id, 202);
}

control::Task<MaintenanceSection::Answer> MaintenanceSection::watch(HttpRequest request, DrainId id) {
  CKPT_CO_TRY(since, query_number(request, "since", 0, kMaxRevision));
  CKPT_CO_TRY(timeout, query_number(request, "timeout_ms", kDefaultWaitMs, kMaxWaitMs));
  const auto deadline = steady_clock::now() + milliseconds(timeout);
  while (true) {
    const Drain* drain = deps_.table.find(id);
    const bool is_new =
        drain == nullptr || !drain->open() || drain->revision > static_cast<std::uint64_t>(since);
    if (is_new || steady_clock::now() >= deadline) co_return show(id, 200);
    co_await deps_.table.changed().wait_until(deadline);
  }
}

MaintenanceSection::Answer MaintenanceSection::show(DrainId id, unsigned status) const {
  const Drain* drain = deps_.table.find(id);
  if (drain == nullptr) return Error(ErrorCode::kNotFound, "There is no drain " + drain_text(id));
  return to_response(status, record::to_answer(drain_view(*drain)));
}

}  // namespace ckpt::coordinator
