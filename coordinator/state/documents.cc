// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/documents.h"

#include <nlohmann/json.hpp>

#include "coordinator/state/image_documents.h"
#include "coordinator/state/usual_pause.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {
namespace {

using nlohmann::json;

template <class E>
json number(E value) {
  return static_cast<unsigned>(value);
}
template <class E>
E enum_from(const json& j) {
  return static_cast<E>(j.get<unsigned>());
}

json doubts_document(const std::vector<Doubt>& doubts) {
  json list = json::array();
  for (const Doubt& doubt : doubts)
    list.push_back({{"since_ms", doubt.since_ms},
                    {"from", doubt.from},
                    {"up_to", doubt.up_to},
                    {"reason", doubt.reason}});
  return list;
}

std::vector<Doubt> doubts_from(const json& list) {
  std::vector<Doubt> doubts;
  for (const json& j : list) {
    Doubt& doubt = doubts.emplace_back();
    doubt.since_ms = j.at("since_ms").get<std::int64_t>();
    doubt.from = j.at("from").get<Incarnation>();
    doubt.up_to = j.at("up_to").get<Incarnation>();
    doubt.reason = j.at("reason").get<std::string>();
  }
  return doubts;
}

json memory_document(const MemoryHistory& memory) {
  json minutes = json::array();
  for (const MemoryMinute& entry : memory.minutes()) minutes.push_back({entry.minute, entry.bytes});
  return {{"peak", memory.peak()}, {"peak_ms", memory.peak_ms()}, {"minutes", minutes}};
}

MemoryHistory memory_from(const json& j) {
  std::deque<MemoryMinute> minutes;
  for (const json& entry : j.at("minutes"))
    minutes.emplace_back(entry.at(0).get<std::int64_t>(), entry.at(1).get<std::uint64_t>());
  return MemoryHistory::restore(j.at("peak").get<std::uint64_t>(), j.at("peak_ms").get<std::int64_t>(),
                                minutes);
}

json pause_document(const wire::PauseFacts& pause) {
  return {{"kind", number(pause.kind)}, {"ns", pause.ns.all}, {"bytes", pause.bytes.all}};
}

wire::PauseFacts pause_from(const json& j) {
  wire::PauseFacts pause;
  pause.kind = enum_from<wire::PauseKind>(j.at("kind"));
  j.at("ns").get_to(pause.ns.all);
  j.at("bytes").get_to(pause.bytes.all);
  return pause;
}

}  // namespace

json place_document(const Place& place) {
  return {{"node", place.node}, {"gpu", place.gpu}};
}
Place place_from_document(const json& j) {
  return {j.at("node").get<std::string>(), j.at("gpu").get<std::uint32_t>()};
}

std::string job_document(const Job& job) {
  json segments = json::array();
  for (const Segment& s : job.segments) {
    json segment = {{"node", s.node}, {"incarnation", s.incarnation}};
    if (!s.image.empty()) {
      segment["image"] = s.image;
      segment["lost_ms"] = s.lost_ms;
    }
    segments.push_back(std::move(segment));
  }
  json ranks = json::array();
  for (const JobRank& r : job.ranks)
    ranks.push_back({{"rank", r.rank},
                     {"place", place_document(r.place)},
                     {"pid", r.pid},
                     {"state_bytes", r.state_bytes}});
  json j = {{"state", number(job.state)},
            {"incarnation", job.incarnation},
            {"segments", segments},
            {"ranks", ranks},
            {"phase", number(job.phase)},
            {"movable", job.movable},
            {"reason", job.reason},
            {"placed", job.placed},
            {"stop_requested", job.stop_requested},
            {"exit_code", job.exit_code},
            {"ended_as_told", job.ended_as_told},
            {"started_ms", job.started_ms},
            {"ended_ms", job.ended_ms}};
  if (job.last_downtime_ms) j["last_downtime_ms"] = *job.last_downtime_ms;
  json pauses = json::array();
  for (const wire::PauseFacts& pause : job.pauses) pauses.push_back(pause_document(pause));
  j["pauses"] = pauses;
  j["fenced"] = job.fenced;
  j["resumes_itself"] = job.resumes_itself;
  j["stop_grace_ms"] = job.stop_grace_ms;
  j["may_live_on"] = job.may_live_on;
  if (!job.doubts.empty()) j["doubts"] = doubts_document(job.doubts);
  j["unfenced"] = job.unfenced;
  if (job.unconfirmed) j["unconfirmed"] = true;
  j["parked_ms"] = job.parked_ms;
  j["rested_ms"] = job.rested_ms;
  if (job.meets_as != 0) {
    j["meets_as"] = job.meets_as;
    j["meets_at_port"] = job.meets_at_port;
  }
  if (job.protection) j["protection"] = protection_document(*job.protection);
  if (job.snapshot) j["snapshot"] = snapshot_document(*job.snapshot);
  if (job.operation) j["operation"] = operation_document(*job.operation);
  j["memory"] = memory_document(job.memory);
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

Job job_from_document(const std::string& text) {
  const json j = json::parse(text);
  Job job;
  job.state = enum_from<JobState>(j.at("state"));
  job.incarnation = j.at("incarnation").get<Incarnation>();
  for (const json& s : j.at("segments")) {
    Segment& segment =
        job.segments.emplace_back(s.at("node").get<std::string>(), s.at("incarnation").get<Incarnation>());
    segment.image = s.value("image", "");
    segment.lost_ms = s.value("lost_ms", std::int64_t{0});
  }
  if (job.segments.empty()) throw std::runtime_error("a job without instances");
  for (const json& r : j.at("ranks")) {
    JobRank& rank = job.ranks.emplace_back();
    rank.rank = r.at("rank").get<std::uint32_t>();
    rank.place = place_from_document(r.at("place"));
    rank.pid = r.at("pid").get<std::int32_t>();
    rank.state_bytes = r.at("state_bytes").get<std::uint64_t>();
  }
  job.phase = enum_from<wire::JobPhase>(j.at("phase"));
  job.movable = j.at("movable").get<bool>();
  job.reason = j.at("reason").get<std::string>();
  job.placed = j.at("placed").get<std::string>();
  job.stop_requested = j.at("stop_requested").get<bool>();
  job.exit_code = j.at("exit_code").get<std::int32_t>();
  job.ended_as_told = j.value("ended_as_told", false);
  job.started_ms = j.at("started_ms").get<std::int64_t>();
  job.ended_ms = j.at("ended_ms").get<std::int64_t>();
  if (j.contains("last_downtime_ms")) job.last_downtime_ms = j.at("last_downtime_ms").get<double>();
  if (j.contains("pauses"))
    for (const json& pause : j.at("pauses")) add_pause(job.pauses, pause_from(pause));
  // A store that was written before there were images has none of them.
  job.fenced = j.value("fenced", Incarnation{0});
  job.resumes_itself = j.value("resumes_itself", false);
  job.stop_grace_ms = j.value("stop_grace_ms", std::int64_t{0});
  job.may_live_on = j.value("may_live_on", std::set<std::string>());
  job.doubts = doubts_from(j.value("doubts", json::array()));
  if (j.value("stop_owed", false)) job.may_live_on.insert(job.node());  // of a store before may_live_on
  job.unfenced = j.value("unfenced", false);
  job.unconfirmed = j.value("unconfirmed", false);
  job.parked_ms = j.value("parked_ms", std::int64_t{0});
  job.rested_ms = j.value("rested_ms", std::int64_t{0});
  job.meets_as = j.value("meets_as", Incarnation{0});
  job.meets_at_port = j.value("meets_at_port", std::uint32_t{0});
  if (j.contains("protection")) job.protection = protection_from(j.at("protection"));
  if (j.contains("snapshot")) job.snapshot = snapshot_from(j.at("snapshot"));
  if (j.contains("operation")) job.operation = operation_from(j.at("operation"));
  if (j.contains("memory")) job.memory = memory_from(j.at("memory"));
  return job;
}

std::string migration_document(const Migration& m) {
  json staying = json::array();
  for (const StayingRankTimes& times : m.staying)
    staying.push_back({{"rank", times.rank},
                       {"pause_ms", times.pause_ms},
                       {"groups_ms", times.groups_ms},
                       {"to_barrier_ms", times.to_barrier_ms}});
  json j = {{"job", m.job},
            {"job_name", m.job_name},
            {"from", place_document(m.from)},
            {"to", place_document(m.to)},
            {"mode", number(m.options.mode)},
            {"if_not_converged", number(m.options.if_not_converged)},
            {"max_downtime_ns", m.options.max_downtime_ns},
            {"bandwidth", m.options.bandwidth_bytes_per_second},
            {"max_rounds", m.options.max_rounds},
            {"codec", number(m.options.codec)},
            {"shadow_memory_bytes", m.options.shadow_memory_bytes},
            {"slowdown_permille", m.options.slowdown_permille},
            {"new_argv", m.options.new_argv},
            {"allowed_differences", m.options.allowed_differences},
            {"communicators", number(m.options.communicators)},
            {"timeout_ms", m.timeout_ms},
            {"expected_pause_ms", m.expected_pause_ms},
            {"why", m.why},
            {"network", m.network},
            {"transport", m.transport},
            {"phase", number(m.phase)},
            {"result", number(m.result)},
            {"error", m.error},
            {"abort_cause", number(m.abort_cause)},
            {"base", m.base},
            {"incarnation", m.incarnation},
            {"runs_at", number(m.runs_at)},
            {"ran_at_target", m.ran_at_target},
            {"started_ms", m.started_ms},
            {"ended_ms", m.ended_ms},
            {"revision", m.revision},
            {"settled", m.settled},
            {"gang_move", m.gang_move},
            {"staying", staying}};
  if (m.skew_ms) j["skew_ms"] = *m.skew_ms;
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

Migration migration_from_document(const std::string& text) {
  const json j = json::parse(text);
  Migration m;
  m.job = j.at("job").get<JobId>();
  m.job_name = j.at("job_name").get<std::string>();
  m.from = place_from_document(j.at("from"));
  m.to = place_from_document(j.at("to"));
  m.options.mode = enum_from<wire::MigrateMode>(j.at("mode"));
  m.options.if_not_converged = enum_from<wire::NotConverged>(j.at("if_not_converged"));
  m.options.max_downtime_ns = j.at("max_downtime_ns").get<std::int64_t>();
  m.options.bandwidth_bytes_per_second = j.at("bandwidth").get<std::uint64_t>();
  m.options.max_rounds = j.at("max_rounds").get<std::uint32_t>();
  // A store that was written before these options has none of them.
  if (j.contains("codec")) m.options.codec = enum_from<wire::CodecMode>(j.at("codec"));
  m.options.shadow_memory_bytes = j.value("shadow_memory_bytes", std::uint64_t{0});
  m.options.slowdown_permille = j.value("slowdown_permille", std::uint32_t{0});
  m.options.new_argv = j.value("new_argv", std::vector<std::string>());
  m.options.allowed_differences = j.value("allowed_differences", std::uint8_t{0});
  if (j.contains("communicators"))
    m.options.communicators = enum_from<wire::Communicators>(j.at("communicators"));
  m.timeout_ms = j.at("timeout_ms").get<std::int64_t>();
  m.expected_pause_ms = j.value("expected_pause_ms", 0.0);
  m.why = j.at("why").get<std::string>();
  m.network = j.value("network", "");
  m.transport = j.value("transport", "");
  m.phase = enum_from<MigrationPhase>(j.at("phase"));
  m.result = enum_from<MigrationResult>(j.at("result"));
  m.error = j.at("error").get<std::string>();
  m.abort_cause = enum_from<AbortCause>(j.at("abort_cause"));
  m.base = j.at("base").get<Incarnation>();
  m.incarnation = j.at("incarnation").get<Incarnation>();
  m.runs_at = enum_from<Side>(j.at("runs_at"));
  m.ran_at_target = j.value("ran_at_target", false);
  m.started_ms = j.at("started_ms").get<std::int64_t>();
  m.ended_ms = j.at("ended_ms").get<std::int64_t>();
  m.revision = j.at("revision").get<std::uint64_t>();
  m.settled = j.value("settled", false);
  m.gang_move = j.value("gang_move", MigrationId{0});
  for (const json& known : j.value("staying", json::array())) {
    StayingRankTimes& times = m.staying.emplace_back();
    times.rank = known.at("rank").get<std::uint32_t>();
    times.pause_ms = known.at("pause_ms").get<double>();
    times.groups_ms = known.at("groups_ms").get<double>();
    times.to_barrier_ms = known.value("to_barrier_ms", 0.0);
  }
  if (j.contains("skew_ms")) m.skew_ms = j.at("skew_ms").get<double>();
  return m;
}

}  // namespace ckpt::coordinator
