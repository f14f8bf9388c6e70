// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/cluster_section.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "coordinator/api/migration_views.h"
#include "coordinator/api/named_job.h"
#include "coordinator/api/node_views.h"
#include "coordinator/api/optional_text.h"
#include "coordinator/requests/api_answers.h"
#include "libckpt/record/document.h"

namespace ckpt::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::int64_t kMaxEventId = std::int64_t{1} << 60;
constexpr std::int64_t kMaxEvents = 10'000;
constexpr std::size_t kMaxKinds = 64;

}  // namespace

bool ClusterSection::handles(const HttpRequest& request) const {
  const std::string& subject = request.path[1];
  const bool known = subject == "status" || subject == "nodes" || subject == "gpus" || subject == "events";
  return known && request.path.size() == 2 && is_get(request);
}

control::Task<Result<HttpResponse>> ClusterSection::handle(HttpRequest request) {
  const std::string subject = request.path[1];
  if (subject == "events") co_return co_await events(std::move(request));
  if (subject == "nodes") co_return to_response(200, nodes());
  if (subject == "gpus") co_return to_response(200, gpus());
  co_return to_response(200, record::to_answer(status()));
}

json ClusterSection::nodes() const {
  json out = json::array();
  for (const auto& [name, node] : deps_.nodes.all())
    out.push_back(record::to_answer(node_view(node, deps_.jobs, deps_.cordons, deps_.policy)));
  return out;
}

json ClusterSection::gpus() const {
  std::map<std::pair<std::string, std::uint32_t>, std::uint64_t> available;
  for (const GpuView& view : deps_.planner.gpu_views())
    available[{view.place.node, view.place.gpu}] = view.available_bytes();
  json out = json::array();
  for (const auto& [name, node] : deps_.nodes.all()) {
    for (const wire::GpuInfo& gpu : node.gpus)
      out.push_back(record::to_answer(
          gpu_view(node, gpu, available[{name, gpu.index}], deps_.jobs, deps_.cordons, deps_.faults)));
  }
  return out;
}

api::Status ClusterSection::status() const {
  api::Status view;
  view.version = GPUMIGRATE_VERSION;
  view.api = 1;
  view.started = time_text(deps_.started_ms);
  view.nodes = deps_.nodes.all().size();
  for (const auto& [name, node] : deps_.nodes.all()) view.nodes_ready += node.connected() ? 1 : 0;
  for (const Job& job : deps_.jobs.live()) view.jobs_live += is_ended(job.state) ? 0 : 1;
  view.migrations_open = deps_.migrations.open().size();
  view.breaker_open = deps_.policy.breaker().open;
  view.agent_address = deps_.agent_address;
  return view;
}

// Reads the event filter from the query: job=JOB, type=KIND[,KIND...] and since_ms=UNIX TIME.
Result<void> ClusterSection::read_event_filter(const HttpRequest& request, EventQuery& query) const {
  const auto given = [&](const char* key) {
    const auto at = request.query.find(key);
    return at == request.query.end() ? std::string() : at->second;
  };
  if (const std::string job = given("job"); !job.empty()) {
    const auto found = find_named(deps_.jobs, job);
    query.job = found ? std::optional(found->job.id) : parse_job_id(job);
    if (!query.job) return deps_.jobs.not_found(job);
  }
  std::istringstream kinds(given("type"));
  for (std::string kind; std::getline(kinds, kind, ',');) {
    if (!kind.empty()) query.kinds.push_back(kind);
    if (query.kinds.size() > kMaxKinds)
      return Error(ErrorCode::kInvalidArgument, "Parameter \"type\" names too many kinds of events");
  }
  CKPT_TRY(since_ms, query_number(request, "since_ms", 0, kMaxEventId));
  query.since_ms = since_ms;
  return ok();
}

control::Task<Result<HttpResponse>> ClusterSection::events(HttpRequest request) {
  // The cursor is the parameter `since`. Its name in other list calls, `after`, is also accepted; `since`
  // takes precedence.
  CKPT_CO_TRY(after, query_number(request, "after", 0, kMaxEventId));
  CKPT_CO_TRY(since, query_number(request, "since", after, kMaxEventId));
  CKPT_CO_TRY(follow, query_number(request, "follow_ms", 0, kMaxWaitMs));
  EventQuery query;
  CKPT_CO_TRYV(read_event_filter(request, query));
  CKPT_CO_TRY(limit, query_number(request, "limit", 1000, kMaxEvents));
  query.since = static_cast<std::uint64_t>(since);
  query.limit = static_cast<std::size_t>(limit);
  const auto deadline = steady_clock::now() + milliseconds(follow);
  while (true) {
    CKPT_CO_TRY(newest, deps_.events.newest());
    CKPT_CO_TRY(found, deps_.events.find(query));
    // The next search begins after the events that the filter left out.
    const bool has_all = found.size() < query.limit;
    if (has_all || !found.empty()) query.since = std::max(query.since, has_all ? newest : found.back().id);
    if (found.empty() && steady_clock::now() < deadline) {
      co_await deps_.events.changed().wait_until(deadline);
      continue;
    }
    json list = json::array();
    for (const Event& event : found) list.push_back(record::to_answer(event_view(event)));
    co_return to_response(200, {{"events", list}, {"next", query.since}});
  }
}

}  // namespace ckpt::coordinator
