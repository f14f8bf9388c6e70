// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/list_views.h"

#include "libckpt/record/document.h"
#include "tools/gpumigrate/client/progress.h"
#include "tools/gpumigrate/client/short_text.h"
#include "tools/gpumigrate/client/views.h"

namespace ckpt::cli {
namespace {

constexpr std::size_t kDateLength = 10;  // the length of 2026-01-31

// Returns a text like "node-a by operator: new driver; node-a:1 by health: Xid 79".
std::string cordons_of(const std::optional<std::vector<api::Cordon>>& cordons) {
  std::string out;
  for (const api::Cordon& cordon : cordons.value_or(std::vector<api::Cordon>())) {
    out += (out.empty() ? "" : "; ") + cordon.place + " by " + cordon.owner;
    if (cordon.reason) out += ": " + *cordon.reason;
  }
  return out.empty() ? "-" : out;
}

// Returns a line for each node that has no GPUs, or no current facts about them.
std::string gpu_reasons_of(const std::vector<api::Node>& nodes, const Layout& layout) {
  std::string text;
  for (const api::Node& node : nodes)
    if (node.gpu_reason) text += paragraph(node.name + ": " + printable(*node.gpu_reason), layout);
  return text.empty() ? text : "\n" + text;
}

bool is_cordoned(const api::Node& node) {
  const auto cordons = node.cordons.value_or(std::vector<api::Cordon>());
  return std::any_of(cordons.begin(), cordons.end(),
                     [&](const api::Cordon& cordon) { return cordon.place == node.name; });
}

// Returns the memory that a job uses on its GPU, or that a parked job would use.
std::string shown_memory_of(const api::Job& job) {
  const std::uint64_t held = job.memory ? job.memory->now_bytes : 0;
  return short_bytes(held > 0 ? held : job.state_bytes);
}

Tone tone_of_result(const std::string& result) {
  if (result == "done") return Tone::kGood;
  if (result == "-") return Tone::kPlain;
  return result == "lost" || result == "failed" ? Tone::kBad : Tone::kWarning;
}

// Returns whether the job can move: "yes", "no", or "within its node; 2 obstacles" if the job cannot move to
// another node.
std::string movable_of(const api::Job& job) {
  if (!job.movable) return "no";
  const std::string obstacles = obstacles_of(job);
  return obstacles.empty() ? "yes" : "within its node; " + obstacles;
}

// Returns the error of a migration that did not succeed, otherwise its reason.
std::string why_of(const api::Migration& migration) {
  const bool is_over = migration.result && *migration.result != "done";
  return is_over && migration.error ? *migration.error : reason_of(migration);
}

// Returns "ok", the fault of the GPU, or "node silent" if the GPU's health is unknown.
Cell health_of(const api::Gpu& gpu) {
  if (!gpu.healthy) return {gpu.reason.value_or("-"), Tone::kBad};
  if (gpu.node_silent) return {"node silent", Tone::kWarning};
  return gpu.finding ? Cell(gpu.finding->text, Tone::kWarning) : Cell("ok", Tone::kGood);
}

}  // namespace

bool has_ended(const api::Job& job) {
  return job.state == "exited" || job.state == "failed" || job.state == "lost";
}

// Returns a text like "node-a:0,1,3", or "node-a:0,node-b:0" for several nodes.
static std::string places_of(const std::vector<std::string>& gpus) {
  std::string out;
  std::string last_node;
  for (const std::string& place : gpus) {
    const std::size_t colon = place.rfind(':');
    const std::string node = place.substr(0, colon);
    const bool same = !out.empty() && node == last_node && colon != std::string::npos;
    out += (out.empty() ? "" : ",") + (same ? place.substr(colon + 1) : place);
    last_node = node;
  }
  return out;
}

std::string place_of(const api::Job& job) {
  if (!job.gpus.empty()) return places_of(job.gpus);
  return job.node.value_or("-") + (job.gpu ? ":" + std::to_string(*job.gpu) : "");
}

std::vector<api::Migration> migrations_in(const Json& answer) {
  return record::list_from_answer<api::Migration>(answer.is_array() ? answer : member(answer, "migrations"));
}

std::string reason_of(const api::Migration& migration) {
  constexpr std::string_view kOwn = "[gpumigrate] ";
  const std::string reason = migration.reason.value_or("-");
  return reason.starts_with(kOwn) ? reason.substr(kOwn.size()) : reason;
}

Cell state_of_job(const api::Job& job, const MoveOf& move_of) {
  const std::string& state = job.state;
  if (state == "exited")
    return {job.exit_code ? "exited " + std::to_string(*job.exit_code) : state, Tone::kFaint};
  if (state == "failed" || state == "lost" || state == "unknown" || state == "unreachable")
    return {state, Tone::kBad};
  if (state == "stopping" && job.silent_node) return {"stopping (node silent)", Tone::kBad};
  if (state == "running" && job.trouble) return {"running (bad GPU)", Tone::kBad};
  if (state != "migrating") return {state, state == "running" ? Tone::kGood : Tone::kWarning};
  const std::string move = move_of ? move_of(job.id) : std::string();
  return {move.empty() ? "moving" : move, Tone::kWarning};
}

Cell protection_of_job(const api::Job& job, const Layout& layout) {
  if (!job.protection) return {"-"};
  if (job.protection->last_error) return {"FAILS (describe)", Tone::kBad};
  if (!job.protection->last_image) return {"no image yet", Tone::kWarning};
  const std::string& image = *job.protection->last_image;
  const std::size_t at = image.find('@');
  const std::string where = at == std::string::npos ? std::string() : image.substr(at);
  if (!layout.ages) return {where};
  const auto age = static_cast<double>(job.protection->last_image_age_ms.value_or(0));
  return {short_age(age) + " ago" + (where.empty() ? "" : " " + where)};
}

std::string obstacles_of(const api::Job& job) {
  const int count = job.obstacles.value_or(0);
  return count <= 0 ? "" : std::to_string(count) + (count == 1 ? " obstacle" : " obstacles");
}

std::string view_jobs(const std::vector<api::Job>& jobs, const Layout& layout, const MoveOf& move_of) {
  Table table({{"NAME", {.min_width = 8}},
               "ID",
               "STATE",
               {"GPU", {.min_width = 8}},
               {"MEMORY", {.rank = 3, .right = true}},
               {"PRIO", {.rank = 4, .right = true}},
               {"UP", {.rank = 2, .right = true}},
               {"PROTECTED", {.rank = 1, .min_width = 9}},
               {"MODE", {.rank = 8, .wide = true}},
               {"MOVABLE", {.rank = 7, .wide = true}},
               {"INCARNATION", {.rank = 11, .wide = true, .right = true}},
               {"STATE SIZE", {.rank = 9, .wide = true, .right = true}},
               {"PEAK", {.rank = 6, .wide = true, .right = true}},
               {"LAST PAUSE", {.rank = 5, .wide = true, .right = true}},
               {"STARTED", {.rank = 12, .wide = true}}});
  for (const api::Job& job : jobs) {
    const bool ended = has_ended(job);
    table.add({job.name, job.id, state_of_job(job, move_of), place_of(job),
               ended ? "-" : shown_memory_of(job), std::to_string(job.priority),
               ended ? "-" : age_of(job.started.value_or(""), layout), protection_of_job(job, layout),
               job.mode, movable_of(job), std::to_string(job.incarnation), short_bytes(job.state_bytes),
               job.memory ? short_bytes(job.memory->peak_bytes) : "-", span_or_dash(job.last_downtime_ms),
               job.started.value_or("-")});
  }
  return table.text(layout);
}

std::string view_nodes(const std::vector<api::Node>& nodes, const Layout& layout) {
  Table table({{"NODE", {.min_width = 8}},
               "STATE",
               {"GPUS", {.rank = 3, .min_width = 4}},
               {"JOBS", {.rank = 2, .min_width = 8}},
               {"SEEN", {.rank = 4, .right = true}},
               {"EVACUATION", {.rank = 5}},
               {"CORDONS", {.rank = 1, .min_width = 10}},
               {"VERSION", {.rank = 6, .wide = true}},
               {"DRIVER", {.rank = 7, .wide = true}},
               {"RACK", {.rank = 8, .wide = true}},
               {"CERTIFICATE UNTIL", {.rank = 10, .wide = true}},
               {"LABELS", {.rank = 9, .min_width = 8, .wide = true}}});
  for (const api::Node& node : nodes) {
    const bool cordoned = is_cordoned(node);
    const Cell shown(node.state + (cordoned ? ",cordoned" : ""), node.state != "ready" ? Tone::kBad
                                                                 : cordoned            ? Tone::kWarning
                                                                                       : Tone::kGood);
    table.add({node.name, shown, std::to_string(node.gpus), std::to_string(node.jobs),
               age_of(node.last_seen.value_or(""), layout), node.evacuation, cordons_of(node.cordons),
               node.version, node.driver.value_or("-"), node.rack.value_or("-"),
               node.certificate_ends.value_or("-").substr(0, kDateLength), joined_or_dash(node.labels, " ")});
  }
  return table.text(layout) + gpu_reasons_of(nodes, layout);
}

std::string view_gpus(const std::vector<api::Gpu>& gpus, const Layout& layout) {
  Table table({{"GPU", {.min_width = 8}},
               {"MODEL", {.rank = 3, .min_width = 8}},
               {"FREE", {.right = true}},
               {"TOTAL", {.rank = 4, .right = true}},
               {"EXPECTED", {.rank = 5, .right = true}},
               {"HEALTH", {.min_width = 8}},
               {"JOBS", {.rank = 2, .min_width = 8}},
               {"CORDONS", {.rank = 1, .min_width = 10}},
               {"PEAK", {.rank = 6, .wide = true, .right = true}},
               {"UUID", {.rank = 7, .wide = true}}});
  for (const api::Gpu& gpu : gpus) {
    table.add({gpu.node + ":" + std::to_string(gpu.index), gpu.model, short_bytes(gpu.available_bytes),
               short_bytes(gpu.total_bytes), short_bytes(gpu.expected_bytes), health_of(gpu),
               joined_or_dash(gpu.jobs, " "), cordons_of(gpu.cordons), short_bytes(gpu.memory.peak_bytes),
               gpu.uuid});
  }
  return table.text(layout);
}

std::string view_migrations(const std::vector<api::Migration>& migrations, const Layout& layout) {
  Table table({"ID",
               {"JOB", {.min_width = 8}},
               "STATE",
               {"FROM", {.min_width = 8}},
               {"TO", {.min_width = 8}},
               {"PAUSE", {.rank = 1, .right = true}},
               {"AGO", {.rank = 2, .right = true}},
               {"REASON", {.rank = 3, .min_width = 6}},
               {"MODE", {.rank = 4, .wide = true}},
               {"TOTAL", {.rank = 5, .wide = true, .right = true}},
               {"STARTED", {.rank = 7, .wide = true}},
               {"ERROR", {.rank = 6, .min_width = 10, .wide = true}}});
  for (const api::Migration& migration : migrations) {
    const auto& report = migration.report;
    const int percent = copied_percent(migration);
    const Cell state =
        migration.result
            ? Cell(*migration.result, tone_of_result(*migration.result))
            : Cell(percent < 0 ? migration.state : "moving " + std::to_string(percent) + "%", Tone::kWarning);
    table.add({migration.id, migration.job_name, state, migration.from, migration.to,
               report ? span_or_dash(report->downtime_ms) : "-",
               age_of(migration.started.value_or(""), layout), why_of(migration), migration.strategy,
               report ? span_or_dash(report->total_ms) : "-", migration.started.value_or("-"),
               migration.error.value_or("-")});
  }
  return table.text(layout);
}

}  // namespace ckpt::cli
