// SPDX-License-Identifier: Apache-2.0
#include "coordinator/maintenance/drain.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

namespace ckpt::coordinator {
namespace {

using nlohmann::json;

json place_json(const Place& place) {
  return {{"node", place.node}, {"gpu", place.gpu}};
}
Place place_from(const json& j) {
  return {j.at("node").get<std::string>(), j.at("gpu").get<std::uint32_t>()};
}

json job_json(const DrainJob& job) {
  json j = {{"job", job.job},
            {"name", job.name},
            {"state", static_cast<unsigned>(job.state)},
            {"reason", job.reason},
            {"priority", job.priority},
            {"state_bytes", job.state_bytes},
            {"from", place_json(job.from)},
            {"migration", job.migration},
            {"attempts", job.attempts},
            {"restore_tried", job.restore_tried}};
  if (!job.obstacles.empty()) j["obstacles"] = job.obstacles;
  if (job.to) j["to"] = place_json(*job.to);
  if (job.downtime_ms) j["downtime_ms"] = *job.downtime_ms;
  return j;
}

DrainJob job_from(const json& j) {
  DrainJob job;
  job.job = j.at("job").get<JobId>();
  job.name = j.at("name").get<std::string>();
  job.state = static_cast<DrainJobState>(j.at("state").get<unsigned>());
  job.reason = j.at("reason").get<std::string>();
  job.priority = j.at("priority").get<std::int32_t>();
  job.state_bytes = j.at("state_bytes").get<std::uint64_t>();
  job.from = place_from(j.at("from"));
  job.migration = j.at("migration").get<MigrationId>();
  job.attempts = j.at("attempts").get<std::uint32_t>();
  job.restore_tried = j.at("restore_tried").get<bool>();
  if (j.contains("obstacles")) job.obstacles = j.at("obstacles").get<std::vector<std::string>>();
  if (j.contains("to")) job.to = place_from(j.at("to"));
  if (j.contains("downtime_ms")) job.downtime_ms = j.at("downtime_ms").get<double>();
  return job;
}

bool has(const Drain& drain, DrainJobState state) {
  return std::any_of(drain.jobs.begin(), drain.jobs.end(),
                     [&](const DrainJob& job) { return job.state == state; });
}

}  // namespace

std::string drain_text(DrainId id) {
  return wire::id_text('d', id);
}

std::string drain_label(const Drain& drain) {
  return drain_text(drain.id) + " of " + to_text(drain.scope);
}

std::string drain_reason(const Drain& drain) {
  return "[gpumigrate] drain " + drain_text(drain.id) + (drain.reason.empty() ? "" : ": " + drain.reason);
}

std::optional<DrainId> parse_drain_id(std::string_view text) {
  return wire::parse_id('d', text);
}

std::string_view to_string(Fallback fallback) noexcept {
  return fallback == Fallback::kRestore ? "restore" : "leave";
}

std::string_view to_string(DrainJobState state) noexcept {
  switch (state) {
    case DrainJobState::kWaiting:
      return "waiting";
    case DrainJobState::kMoving:
      return "moving";
    case DrainJobState::kRestoring:
      return "restoring";
    case DrainJobState::kMoved:
      return "moved";
    case DrainJobState::kRestored:
      return "restored";
    case DrainJobState::kEnded:
      return "ended";
    case DrainJobState::kBlocked:
      return "blocked";
    case DrainJobState::kFailed:
      return "failed";
    case DrainJobState::kLeft:
      return "left";
    case DrainJobState::kLost:
      return "lost";
  }
  return "unknown";
}

std::string_view to_string(DrainResult result) noexcept {
  switch (result) {
    case DrainResult::kNone:
      return "none";
    case DrainResult::kEmpty:
      return "empty";
    case DrainResult::kIncomplete:
      return "incomplete";
    case DrainResult::kDeadline:
      return "deadline";
    case DrainResult::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

DrainJob* Drain::find(JobId job) {
  const auto at = std::find_if(jobs.begin(), jobs.end(), [&](const DrainJob& d) { return d.job == job; });
  return at == jobs.end() ? nullptr : &*at;
}

bool goes_before(const DrainJob& a, const DrainJob& b) {
  return std::tuple(-std::int64_t{a.priority}, a.state_bytes, a.job) <
         std::tuple(-std::int64_t{b.priority}, b.state_bytes, b.job);
}

DrainResult result_of(const Drain& drain, bool coming, bool deadline_passed) {
  if (has(drain, DrainJobState::kMoving) || has(drain, DrainJobState::kRestoring)) return DrainResult::kNone;
  const bool waiting = coming || has(drain, DrainJobState::kWaiting);
  if (drain.cancelled) return DrainResult::kCancelled;
  if (waiting) return deadline_passed ? DrainResult::kDeadline : DrainResult::kNone;
  const bool all_gone = std::all_of(drain.jobs.begin(), drain.jobs.end(),
                                    [](const DrainJob& job) { return is_gone(job.state); });
  return all_gone ? DrainResult::kEmpty : DrainResult::kIncomplete;
}

int exit_code_of(const Drain& drain) {
  if (has(drain, DrainJobState::kLost)) return 4;
  switch (drain.result) {
    case DrainResult::kEmpty:
      return has(drain, DrainJobState::kRestored) ? 3 : 0;
    case DrainResult::kIncomplete:
      return 1;
    case DrainResult::kDeadline:
    case DrainResult::kCancelled:
      return 2;
    case DrainResult::kNone:
      break;
  }
  return 6;
}

std::string drain_document(const Drain& drain) {
  json jobs = json::array();
  for (const DrainJob& job : drain.jobs) jobs.push_back(job_json(job));
  json j = {{"node", drain.scope.node},
            {"parallel", drain.parallel},
            {"fallback", static_cast<unsigned>(drain.fallback)},
            {"reason", drain.reason},
            {"deadline_ms", drain.deadline_ms},
            {"started_ms", drain.started_ms},
            {"ended_ms", drain.ended_ms},
            {"cancelled", drain.cancelled},
            {"cancel_reason", drain.cancel_reason},
            {"result", static_cast<unsigned>(drain.result)},
            {"jobs", jobs},
            {"revision", drain.revision}};
  if (drain.scope.gpu) j["gpu"] = *drain.scope.gpu;
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

Drain drain_from_document(const std::string& text) {
  const json j = json::parse(text);
  Drain drain;
  drain.scope.node = j.at("node").get<std::string>();
  if (j.contains("gpu")) drain.scope.gpu = j.at("gpu").get<std::uint32_t>();
  drain.parallel = j.at("parallel").get<std::uint32_t>();
  drain.fallback = static_cast<Fallback>(j.at("fallback").get<unsigned>());
  drain.reason = j.at("reason").get<std::string>();
  drain.deadline_ms = j.at("deadline_ms").get<std::int64_t>();
  drain.started_ms = j.at("started_ms").get<std::int64_t>();
  drain.ended_ms = j.at("ended_ms").get<std::int64_t>();
  drain.cancelled = j.at("cancelled").get<bool>();
  drain.cancel_reason = j.at("cancel_reason").get<std::string>();
  drain.result = static_cast<DrainResult>(j.at("result").get<unsigned>());
  for (const json& job : j.at("jobs")) drain.jobs.push_back(job_from(job));
  drain.revision = j.at("revision").get<std::uint64_t>();
  return drain;
}

}  // namespace ckpt::coordinator
