// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/list_views.h"

#include "libckpt/record/document.h"
#include "tools/gpumigrate/client/progress.h"
#include "tools/gpumigrate/client/short_text.h"
#include "tools/gpumigrate/client/views.h"

namespace ckpt::cli {
namespace {

constexpr std::size_t kDateLength = 10;  // 2026-01-31

// A list of texts or numbers in one cell.
std::string joined(const Json& list) {
  std::string out;
  for (const Json& item : list)
    out += (out.empty() ? "" : " ") + (item.is_string() ? item.get<std::string>() : item.dump());
  return out.empty() ? "-" : out;
}

// "node-a by operator: new driver; node-a:1 by health: Xid 79".
std::string cordons_of(const Json& object) {
  std::string out;
  for (const Json& cordon : member(object, "cordons")) {
    out += (out.empty() ? "" : "; ") + text_of(cordon, "place") + " by " + text_of(cordon, "owner");
    if (has_value(cordon, "reason")) out += ": " + text_of(cordon, "reason");
  }
  return out.empty() ? "-" : out;
}

// A line for each node that has no GPUs, or no fresh facts about them.
std::string gpu_reasons_of(const Json& nodes, const Layout& layout) {
  std::string text;
  for (const Json& node : nodes) {
    if (has_value(node, "gpu_reason"))
      text += paragraph(text_of(node, "name") + ": " + printable(text_of(node, "gpu_reason")), layout);
  }
  return text.empty() ? text : "\n" + text;
}

bool is_cordoned(const Json& object, const std::string& place) {
  for (const Json& cordon : member(object, "cordons"))
    if (text_of(cordon, "place") == place) return true;
  return false;
}

// What it holds on a GPU, or would hold there.
std::string shown_memory_of(const Json& job) {
  const Json& memory = member(job, "memory");
  return number_of(memory, "now_bytes") > 0 ? short_bytes_of(memory, "now_bytes")
                                            : short_bytes_of(job, "state_bytes");
}

Tone tone_of_result(const std::string& result) {
  if (result == "done") return Tone::kGood;
  if (result == "-") return Tone::kPlain;
  return result == "lost" || result == "failed" ? Tone::kBad : Tone::kWarning;
}

// "no", "yes", or "within its node; 2 obstacles": what keeps the job from another node.
std::string movable_of(const Json& job) {
  if (!flag_of(job, "movable")) return "no";
  const std::string obstacles = obstacles_of(job);
  return obstacles.empty() ? "yes" : "within its node; " + obstacles;
}

// Why it was begun, or why it did not come to its end.
std::string why_of(const api::Migration& migration) {
  const bool is_over = migration.result && *migration.result != "done";
  return is_over && migration.error ? *migration.error : reason_of(migration);
}

// "ok", or what speaks against the GPU, or that nothing is known while its node is silent.
Cell health_of(const Json& gpu) {
  if (!flag_of(gpu, "healthy")) return {text_of(gpu, "reason"), Tone::kBad};
  if (flag_of(gpu, "node_silent")) return {"node silent", Tone::kWarning};
  const Json& finding = member(gpu, "finding");
  return finding.is_object() ? Cell(text_of(finding, "text"), Tone::kWarning) : Cell("ok", Tone::kGood);
}

}  // namespace

bool has_ended(const Json& job) {
  const std::string state = text_of(job, "state");
  return state == "exited" || state == "failed" || state == "lost";
}

// "node-a:0,1,3", or each with its node where there are several.
static std::string places_of(const Json& gpus) {
  std::string out;
  std::string last_node;
  for (const Json& gpu : gpus) {
    const std::string place = gpu.is_string() ? gpu.get<std::string>() : gpu.dump();
    const std::size_t colon = place.rfind(':');
    const std::string node = place.substr(0, colon);
    const bool same = !out.empty() && node == last_node && colon != std::string::npos;
    out += (out.empty() ? "" : ",") + (same ? place.substr(colon + 1) : place);
    last_node = node;
  }
  return out;
}

std::string place_of(const Json& object) {
  if (const Json& gpus = member(object, "gpus"); gpus.is_array() && !gpus.empty()) return places_of(gpus);
  return has_value(object, "gpu") ? text_of(object, "node") + ":" + text_of(object, "gpu")
                                  : text_of(object, "node");
}

std::vector<api::Migration> migrations_in(const Json& answer) {
  return record::list_from_answer<api::Migration>(answer.is_array() ? answer : member(answer, "migrations"));
}

std::string reason_of(const api::Migration& migration) {
  constexpr std::string_view kOwn = "[gpumigrate] ";
  const std::string reason = migration.reason.value_or("-");
  return reason.starts_with(kOwn) ? reason.substr(kOwn.size()) : reason;
}

Cell state_of_job(const Json& job, const MoveOf& move_of) {
  const std::string state = text_of(job, "state");
  if (state == "exited")
    return {has_value(job, "exit_code") ? "exited " + text_of(job, "exit_code") : state, Tone::kFaint};
  if (state == "failed" || state == "lost" || state == "unknown" || state == "unreachable")
    return {state, Tone::kBad};
  if (state == "stopping" && has_value(job, "silent_node")) return {"stopping (node silent)", Tone::kBad};
  if (state == "running" && has_value(job, "trouble")) return {"running (bad GPU)", Tone::kBad};
  if (state != "migrating") return {state, state == "running" ? Tone::kGood : Tone::kWarning};
  const std::string move = move_of ? move_of(text_of(job, "id")) : std::string();
  return {move.empty() ? "moving" : move, Tone::kWarning};
}

Cell protection_of_job(const Json& job, const Layout& layout) {
  const Json& protection = member(job, "protection");
  if (!protection.is_object()) return {"-"};
  if (has_value(protection, "last_error")) return {"FAILS (describe)", Tone::kBad};
  if (!has_value(protection, "last_image")) return {"no image yet", Tone::kWarning};
  const std::string image = text_of(protection, "last_image");
  const std::size_t at = image.find('@');
  const std::string where = at == std::string::npos ? std::string() : image.substr(at);
  if (!layout.ages) return {where};
  return {short_age(number_of(protection, "last_image_age_ms")) + " ago" +
          (where.empty() ? "" : " " + where)};
}

std::string obstacles_of(const Json& job) {
  const auto count = static_cast<int>(number_of(job, "obstacles"));
  return count <= 0 ? "" : std::to_string(count) + (count == 1 ? " obstacle" : " obstacles");
}

std::string view_jobs(const Json& jobs, const Layout& layout, const MoveOf& move_of) {
  Table table({{"NAME", {.least = 8}},
               "ID",
               "STATE",
               {"GPU", {.least = 8}},
               {"MEMORY", {.rank = 3, .right = true}},
               {"PRIO", {.rank = 4, .right = true}},
               {"UP", {.rank = 2, .right = true}},
               {"PROTECTED", {.rank = 1, .least = 9}},
               {"MODE", {.rank = 8, .wide = true}},
               {"MOVABLE", {.rank = 7, .wide = true}},
               {"INCARNATION", {.rank = 11, .wide = true, .right = true}},
               {"STATE SIZE", {.rank = 9, .wide = true, .right = true}},
               {"PEAK", {.rank = 6, .wide = true, .right = true}},
               {"LAST PAUSE", {.rank = 5, .wide = true, .right = true}},
               {"STARTED", {.rank = 12, .wide = true}}});
  for (const Json& job : jobs) {
    const bool ended = has_ended(job);
    table.add({text_of(job, "name"), text_of(job, "id"), state_of_job(job, move_of), place_of(job),
               ended ? "-" : shown_memory_of(job), text_of(job, "priority"),
               ended ? "-" : age_of(job, "started", layout), protection_of_job(job, layout),
               text_of(job, "way"), movable_of(job), text_of(job, "incarnation"),
               short_bytes_of(job, "state_bytes"), short_bytes_of(member(job, "memory"), "peak_bytes"),
               short_span_of(job, "last_downtime_ms"), text_of(job, "started")});
  }
  return table.text(layout);
}

std::string view_nodes(const Json& nodes, const Layout& layout) {
  Table table({{"NODE", {.least = 8}},
               "STATE",
               {"GPUS", {.rank = 3, .least = 4}},
               {"JOBS", {.rank = 2, .least = 8}},
               {"SEEN", {.rank = 4, .right = true}},
               {"EVACUATION", {.rank = 5}},
               {"CORDONS", {.rank = 1, .least = 10}},
               {"VERSION", {.rank = 6, .wide = true}},
               {"DRIVER", {.rank = 7, .wide = true}},
               {"RACK", {.rank = 8, .wide = true}},
               {"CERTIFICATE UNTIL", {.rank = 10, .wide = true}},
               {"LABELS", {.rank = 9, .least = 8, .wide = true}}});
  for (const Json& node : nodes) {
    const std::string state = text_of(node, "state");
    const bool cordoned = is_cordoned(node, text_of(node, "name"));
    const Cell shown(state + (cordoned ? ",cordoned" : ""), state != "ready" ? Tone::kBad
                                                            : cordoned       ? Tone::kWarning
                                                                             : Tone::kGood);
    const std::string seen = age_of(node, "last_seen", layout);
    table.add({text_of(node, "name"), shown, joined(member(node, "gpus")), joined(member(node, "jobs")), seen,
               text_of(node, "evacuation"), cordons_of(node), text_of(node, "version"),
               text_of(node, "driver"), text_of(node, "rack"),
               text_of(node, "certificate_ends").substr(0, kDateLength), joined(member(node, "labels"))});
  }
  return table.text(layout) + gpu_reasons_of(nodes, layout);
}

std::string view_gpus(const Json& gpus, const Layout& layout) {
  Table table({{"GPU", {.least = 8}},
               {"MODEL", {.rank = 3, .least = 8}},
               {"FREE", {.right = true}},
               {"TOTAL", {.rank = 4, .right = true}},
               {"EXPECTED", {.rank = 5, .right = true}},
               {"HEALTH", {.least = 8}},
               {"JOBS", {.rank = 2, .least = 8}},
               {"CORDONS", {.rank = 1, .least = 10}},
               {"PEAK", {.rank = 6, .wide = true, .right = true}},
               {"UUID", {.rank = 7, .wide = true}}});
  for (const Json& gpu : gpus) {
    table.add({text_of(gpu, "node") + ":" + text_of(gpu, "index"), text_of(gpu, "model"),
               short_bytes_of(gpu, "available_bytes"), short_bytes_of(gpu, "total_bytes"),
               short_bytes_of(gpu, "expected_bytes"), health_of(gpu), joined(member(gpu, "jobs")),
               cordons_of(gpu), short_bytes_of(member(gpu, "memory"), "peak_bytes"), text_of(gpu, "uuid")});
  }
  return table.text(layout);
}

std::string view_migrations(const std::vector<api::Migration>& migrations, const Layout& layout) {
  Table table({"ID",
               {"JOB", {.least = 8}},
               "STATE",
               {"FROM", {.least = 8}},
               {"TO", {.least = 8}},
               {"PAUSE", {.rank = 1, .right = true}},
               {"AGO", {.rank = 2, .right = true}},
               {"REASON", {.rank = 3, .least = 6}},
               {"MODE", {.rank = 4, .wide = true}},
               {"TOTAL", {.rank = 5, .wide = true, .right = true}},
               {"STARTED", {.rank = 7, .wide = true}},
               {"ERROR", {.rank = 6, .least = 10, .wide = true}}});
  for (const api::Migration& migration : migrations) {
    const auto& report = migration.report;
    const int percent = copied_percent(migration);
    const Cell state =
        migration.result
            ? Cell(*migration.result, tone_of_result(*migration.result))
            : Cell(percent < 0 ? migration.state : "moving " + std::to_string(percent) + "%", Tone::kWarning);
    table.add({migration.id, migration.job_name, state, migration.from, migration.to,
               report ? span_or_dash(report->downtime_ms) : "-",
               age_of(migration.started.value_or(""), layout), why_of(migration), migration.mode,
               report ? span_or_dash(report->total_ms) : "-", migration.started.value_or("-"),
               migration.error.value_or("-")});
  }
  return table.text(layout);
}

}  // namespace ckpt::cli
