// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/cluster_section.h"

#include "coordinator/requests/api_answers.h"

namespace ckpt::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::int64_t kMaxEventId = std::int64_t{1} << 60;
constexpr std::int64_t kMaxEvents = 10'000;

}  // namespace

bool ClusterSection::takes(const HttpRequest& request) const {
  const std::string& subject = request.path[1];
  const bool known = subject == "status" || subject == "nodes" || subject == "gpus" || subject == "events";
  return known && request.path.size() == 2 && is_get(request);
}

control::Task<Result<HttpResponse>> ClusterSection::handle(HttpRequest request) {
  const std::string subject = request.path[1];
  if (subject == "events") co_return co_await events(std::move(request));
  if (subject == "nodes") co_return to_response(200, nodes());
  if (subject == "gpus") co_return to_response(200, gpus());
  co_return to_response(200, status());
}

json ClusterSection::nodes() const {
  json out = json::array();
  for (const auto& [name, node] : parts_.nodes.all())
    out.push_back(node_json(node, parts_.jobs, parts_.cordons, parts_.policy));
  return out;
}

json ClusterSection::gpus() const {
  json out = json::array();
  for (const auto& [name, node] : parts_.nodes.all()) {
    for (const wire::GpuInfo& gpu : node.gpus)
      out.push_back(gpu_json(node, gpu, parts_.jobs, parts_.cordons));
  }
  return out;
}

json ClusterSection::status() const {
  unsigned ready = 0;
  for (const auto& [name, node] : parts_.nodes.all()) ready += node.connected() ? 1 : 0;
  unsigned live = 0;
  for (const Job& job : parts_.jobs.live()) live += is_ended(job.state) ? 0 : 1;
  return {{"version", GPUMIGRATE_VERSION},
          {"api", 1},
          {"started", time_text(parts_.started_ms)},
          {"nodes", parts_.nodes.all().size()},
          {"nodes_ready", ready},
          {"jobs_live", live},
          {"migrations_open", parts_.migrations.open().size()},
          {"breaker_open", parts_.policy.breaker().open},
          {"agent_address", parts_.agent_address}};
}

control::Task<Result<HttpResponse>> ClusterSection::events(HttpRequest request) {
  CKPT_CO_TRY(after, query_number(request, "after", 0, kMaxEventId));  // as lists have it
  CKPT_CO_TRY(since, query_number(request, "since", after, kMaxEventId));
  CKPT_CO_TRY(follow, query_number(request, "follow_ms", 0, kMaxWaitMs));
  CKPT_CO_TRY(limit, query_number(request, "limit", 1000, kMaxEvents));
  const auto deadline = steady_clock::now() + milliseconds(follow);
  while (true) {
    CKPT_CO_TRY(found,
                parts_.events.since(static_cast<std::uint64_t>(since), static_cast<std::size_t>(limit)));
    if (found.empty() && steady_clock::now() < deadline) {
      co_await parts_.events.changed().wait_until(deadline);
      continue;
    }
    json list = json::array();
    for (const Event& event : found) list.push_back(event_json(event));
    const std::uint64_t next = found.empty() ? static_cast<std::uint64_t>(since) : found.back().id;
    co_return to_response(200, {{"events", list}, {"next", next}});
  }
}

}  // namespace ckpt::coordinator
