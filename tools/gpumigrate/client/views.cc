// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/views.h"

#include <algorithm>
#include <cstdio>

#include "tools/common/units.h"
#include "tools/gpumigrate/client/table.h"

namespace ckpt::cli {
namespace {

using tools::format_bytes;
using tools::format_milliseconds;

std::string bytes_of(const Json& object, const char* field) {
  return member(object, field).is_number() ? format_bytes(number_of(object, field)) : "-";
}

std::string span_of(const Json& object, const char* field) {
  return member(object, field).is_number() ? format_milliseconds(number_of(object, field)) : "-";
}

std::string rate_of(const Json& object, const char* field) {
  return member(object, field).is_number() ? format_bytes(number_of(object, field)) + "/s" : "-";
}

std::string place_of(const Json& object) {
  return has_value(object, "gpu") ? text_of(object, "node") + ":" + text_of(object, "gpu")
                                  : text_of(object, "node");
}

// A list of texts or numbers in one cell.
std::string joined(const Json& list, const char* separator) {
  std::string out;
  if (!list.is_array()) return list.is_null() ? "-" : list.dump();
  for (const Json& item : list) {
    if (!out.empty()) out += separator;
    out += item.is_string() ? item.get<std::string>() : item.dump();
  }
  return out.empty() ? "-" : out;
}

// ",cordoned" if the whole place is, and not only a GPU of it.
std::string cordoned_of(const Json& object, const std::string& place) {
  for (const Json& cordon : member(object, "cordons"))
    if (text_of(cordon, "place") == place) return ",cordoned";
  return "";
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

std::string movable_of(const Json& job) {
  return flag_of(job, "movable") ? "yes" : "no";
}

// "2026-01-01T00:00:00.000Z" without its fraction.
std::string time_of(const Json& object, const char* field) {
  std::string text = text_of(object, field);
  const std::size_t point = text.find('.');
  return point == std::string::npos ? text : text.substr(0, point) + "Z";
}

// "  name            value" lines.
std::string line(const char* name, const std::string& value) {
  char head[32];
  std::snprintf(head, sizeof head, "  %-14s ", name);
  return head + printable(value) + "\n";
}

// "every 30.0 s, image 12.3 s old", or what is wrong.
std::string protection_of(const Json& protection) {
  if (!protection.is_object()) return "-";
  std::string out = "every " + span_of(protection, "every_ms");
  out += has_value(protection, "last_image") ? ", image " + span_of(protection, "last_image_age_ms") + " old"
                                             : ", no image yet";
  if (has_value(protection, "last_error")) out += ", FAILS";
  return out;
}

// What differs from a migration's usual options, like "codec planes, slowdown 3%, bandwidth 1.00 GiB/s".
std::string options_of(const Json& options) {
  std::string out;
  const auto add = [&out](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  if (has_value(options, "codec")) add("codec " + text_of(options, "codec"));
  if (number_of(options, "shadow_memory_bytes") > 0)
    add("shadow memory " + bytes_of(options, "shadow_memory_bytes"));
  if (number_of(options, "slowdown_percent") > 0)
    add("slowdown " + text_of(options, "slowdown_percent") + "%");
  if (number_of(options, "bandwidth") > 0) add("bandwidth " + rate_of(options, "bandwidth"));
  if (number_of(options, "max_rounds") > 0) add("at most " + text_of(options, "max_rounds") + " rounds");
  return out;
}

// "now 1.00 GiB, at most 3.00 GiB at TIME; the last minutes: 1.00 GiB 3.00 GiB - 1.00 GiB"
std::string memory_of(const Json& memory) {
  constexpr std::size_t kShown = 10;
  std::string out = "now " + bytes_of(memory, "now_bytes") + ", at most " + bytes_of(memory, "peak_bytes") +
                    " at " + time_of(memory, "peak_time");
  const Json& minutes = member(memory, "minutes");
  if (!minutes.is_array() || minutes.empty()) return out;
  out += "; by the minute:";
  for (std::size_t i = minutes.size() - std::min(kShown, minutes.size()); i < minutes.size(); ++i)
    out += " " + (minutes[i].is_number() ? format_bytes(minutes[i].get<double>()) : std::string("-"));
  return out;
}

// Behind a pause that no move of the job has shown.
std::string estimate_note(const Json& from, const char* field) {
  return text_of(from, field) == "estimate" ? " (estimated, it has not moved so yet)" : "";
}

}  // namespace

std::string view_jobs(const Json& jobs) {
  Table table({"ID", "NAME", "STATE", "GPU", "INCARNATION", "MOVABLE", "STATE SIZE", "PEAK", "PRIORITY",
               "STARTED", "LAST DOWNTIME", "EXIT", "PROTECTED"});
  for (const Json& job : jobs) {
    table.add({text_of(job, "id"), text_of(job, "name"), text_of(job, "state"), place_of(job),
               text_of(job, "incarnation"), movable_of(job), bytes_of(job, "state_bytes"),
               bytes_of(member(job, "memory"), "peak_bytes"), text_of(job, "priority"),
               time_of(job, "started"), span_of(job, "last_downtime_ms"), text_of(job, "exit_code"),
               protection_of(member(job, "protection"))});
  }
  return table.text();
}

std::string view_job(const Json& job) {
  std::string out = printable(text_of(job, "name")) + " (" + printable(text_of(job, "id")) + ")\n";
  out += line("state", text_of(job, "state"));
  if (has_value(job, "exit_code")) out += line("exit code", text_of(job, "exit_code"));
  out += line("runs at", place_of(job));
  out += line("placed", text_of(job, "placed"));
  out += line("incarnation", text_of(job, "incarnation"));
  out += line("way", text_of(job, "way"));
  out += line("movable", movable_of(job));
  if (has_value(job, "reason")) out += line("reason", text_of(job, "reason"));
  out += line("state size", bytes_of(job, "state_bytes"));
  out += line("GPU memory", memory_of(member(job, "memory")));
  out += line("priority", text_of(job, "priority"));
  out += line("started", time_of(job, "started"));
  out += line("last downtime", span_of(job, "last_downtime_ms"));
  const Json& pause = member(job, "expected_pause_ms");
  const Json& from = member(job, "expected_pause_from");
  if (has_value(pause, "within_node"))
    out += line("a move", "on its node would pause it for " + span_of(pause, "within_node") +
                              estimate_note(from, "within_node"));
  if (has_value(pause, "between_nodes"))
    out += line("a move", "to another node would pause it for " + span_of(pause, "between_nodes") +
                              estimate_note(from, "between_nodes"));
  if (const Json& protection = member(job, "protection"); protection.is_object()) {
    out += line("protected", protection_of(protection) + " (" + text_of(protection, "last_image") +
                                 "), pause " + span_of(protection, "last_pause_ms") + ", keeps " +
                                 text_of(protection, "keep"));
    if (has_value(protection, "last_error"))
      out += line("", "last failure: " + text_of(protection, "last_error"));
  }
  if (const Json& last = member(job, "last_snapshot"); last.is_object())
    out += line("last image", text_of(last, "image") + " of " + time_of(last, "created") + ", " +
                                  bytes_of(last, "new_bytes") + " new, pause " + span_of(last, "pause_ms"));
  out += line("command", joined(member(job, "argv"), " "));
  out += line("folder", text_of(job, "cwd"));
  for (const Json& instance : member(job, "instances")) {
    out += line("instance", text_of(instance, "incarnation") + " at " + text_of(instance, "node") + ", " +
                                text_of(instance, "role") + ", " + text_of(instance, "phase") + ", log " +
                                bytes_of(instance, "log_bytes"));
  }
  for (const Json& migration : member(job, "migrations")) {
    out += line("migration", migration.is_object()
                                 ? text_of(migration, "id") + " " + text_of(migration, "from") + " -> " +
                                       text_of(migration, "to") + " " + text_of(migration, "result")
                                 : joined(Json::array({migration}), " "));
  }
  if (const Json& operation = member(job, "operation"); operation.is_object())
    out += line("images",
                text_of(operation, "verb") + " is " + text_of(operation, "stage") + ", until " +
                    time_of(operation, "deadline") +
                    (has_value(operation, "cancelled") ? ", given up: " + text_of(operation, "cancelled")
                                                       : "; given up by " + text_of(operation, "cancel")));
  if (const Json& open = member(job, "open_migration"); open.is_object()) {
    out += line("moves", text_of(open, "from") + " -> " + text_of(open, "to") + " (" + text_of(open, "id") +
                             " " + text_of(open, "state") + ", " + text_of(open, "mode") + ", " +
                             options_of(member(open, "options")) + ")");
  }
  return out;
}

std::string view_nodes(const Json& nodes) {
  Table table({"NODE", "STATE", "GPUS", "JOBS", "EVACUATION", "VERSION", "LAST SEEN", "CORDONS"});
  for (const Json& node : nodes) {
    table.add({text_of(node, "name"), text_of(node, "state") + cordoned_of(node, text_of(node, "name")),
               joined(member(node, "gpus"), " "), joined(member(node, "jobs"), " "),
               text_of(node, "evacuation"), text_of(node, "version"), time_of(node, "last_seen"),
               cordons_of(node)});
  }
  return table.text();
}

std::string view_gpus(const Json& gpus) {
  Table table({"GPU", "MODEL", "FREE", "TOTAL", "EXPECTED", "PEAK", "HEALTH", "JOBS", "UUID", "CORDONS"});
  for (const Json& gpu : gpus) {
    table.add({text_of(gpu, "node") + ":" + text_of(gpu, "index"), text_of(gpu, "model"),
               bytes_of(gpu, "free_bytes"), bytes_of(gpu, "total_bytes"), bytes_of(gpu, "expected_bytes"),
               bytes_of(member(gpu, "memory"), "peak_bytes"),
               flag_of(gpu, "healthy") ? "ok" : text_of(gpu, "reason"), joined(member(gpu, "jobs"), " "),
               text_of(gpu, "uuid"), cordons_of(gpu)});
  }
  return table.text();
}

std::string view_migrations(const Json& migrations) {
  Table table({"ID", "JOB", "STATE", "FROM", "TO", "MODE", "RESULT", "DOWNTIME", "STARTED", "REASON"});
  for (const Json& migration : migrations) {
    table.add({text_of(migration, "id"), text_of(migration, "job_name"), text_of(migration, "state"),
               text_of(migration, "from"), text_of(migration, "to"), text_of(migration, "mode"),
               text_of(migration, "result"), span_of(member(migration, "report"), "downtime_ms"),
               time_of(migration, "started"), text_of(migration, "reason")});
  }
  return table.text();
}

namespace {

std::string view_candidates(const Json& plan) {
  Table table({"GPU", "SUITABLE", "SCORE", "REASONS"});
  for (const Json& candidate : member(plan, "candidates")) {
    char score[32] = "-";
    if (has_value(candidate, "score"))
      std::snprintf(score, sizeof score, "%+.2f", number_of(candidate, "score"));
    table.add({place_of(candidate), flag_of(candidate, "suitable") ? "yes" : "no", score,
               joined(member(candidate, "reasons"), "; ")});
  }
  return table.text();
}

}  // namespace

std::string view_plan(const Json& plan) {
  std::string out =
      "dry run: job " + printable(text_of(plan, "job")) + " at " + printable(text_of(plan, "from"));
  if (has_value(plan, "to")) {
    out += " would move to " + printable(text_of(plan, "to")) + " (" + printable(text_of(plan, "mode")) +
           ", state " + bytes_of(plan, "state_bytes") + ", " +
           printable(options_of(member(plan, "options"))) + ")\n";
    if (has_value(plan, "expected_pause_ms"))
      out += (text_of(plan, "expected_pause_from") == "estimate"
                  ? "estimated, as it has not moved so yet, it would pause for "
                  : "as its last move tells, it would pause for ") +
             span_of(plan, "expected_pause_ms") + "\n";
  } else {
    out += " cannot move: " + printable(text_of(plan, "reason")) + "\n";
  }
  return out + view_candidates(plan);
}

std::string view_run_plan(const Json& plan) {
  const bool possible = has_value(plan, "to");
  return "dry run: the job would " +
         (possible ? "start at " + printable(text_of(plan, "to"))
                   : "not start: " + printable(text_of(plan, "reason"))) +
         "\n" + view_candidates(plan);
}

std::string view_event(const Json& event) {
  std::string out = time_of(event, "time") + "  " + text_of(event, "kind");
  for (const char* field : {"node", "job", "migration"}) {
    if (has_value(event, field)) out += "  " + text_of(event, field);
  }
  return printable(out + "  " + text_of(event, "text"));
}

namespace {

// The pieces in the order in which they follow one another; those that took no time are left out.
std::string view_breakdown(const Json& pieces) {
  std::string out;
  for (const char* name :
       {"quiesce", "final", "verify", "commit", "context", "host", "fill", "restore", "resume"}) {
    const double piece = number_of(pieces, name);
    if (piece != 0) out += (out.empty() ? "" : ", ") + std::string(name) + " " + format_milliseconds(piece);
  }
  return out.empty() ? "-" : out;
}

std::string view_report(const Json& report) {
  std::string out;
  out +=
      line("downtime", span_of(report, "downtime_ms") + "   bound " + span_of(report, "bound_ms") + " (" +
                           text_of(report, "bound_by") + ")   estimated " + span_of(report, "estimate_ms"));
  out += line("breakdown", view_breakdown(member(report, "downtime_breakdown_ms")));
  if (has_value(report, "under_run")) {
    const Json& saved = member(report, "under_run");
    out += line("under run", "without at most " + span_of(saved, "device_ms") + " for " +
                                 bytes_of(saved, "device_bytes") +
                                 " of device memory; a live move is bound by " + span_of(saved, "bound_ms") +
                                 ", with all of it dirty by " + span_of(saved, "bound_all_dirty_ms"));
  }
  out += line("total", span_of(report, "total_ms") + "   rounds " + text_of(report, "rounds") +
                           "   incarnation " + text_of(report, "incarnation"));
  out += line("sent", bytes_of(report, "sent_bytes") + "   on the wire " + bytes_of(report, "wire_bytes") +
                          "   dirtied meanwhile " + bytes_of(report, "dirty_bytes") + "   state " +
                          bytes_of(report, "state_bytes"));
  out += line("rates", "link " + rate_of(report, "link_bytes_per_second") + "   scan " +
                           rate_of(report, "scan_bytes_per_second") + "   codec " + text_of(report, "codec"));
  out += line("verified", flag_of(report, "verified") ? "yes: source and target hold the same bytes" : "no");
  return out;
}

}  // namespace

std::string view_outcome(const Json& migration) {
  const std::string job = text_of(migration, "job_name") + " (" + text_of(migration, "job") + ")";
  const bool done = text_of(migration, "result") == "done";
  std::string out =
      text_of(migration, "id") + ": " + (done ? "moved " : text_of(migration, "result") + ": ") + job + " " +
      text_of(migration, "from") + " -> " + text_of(migration, "to") + ", " + text_of(migration, "mode");
  if (has_value(migration, "error")) out += "; " + text_of(migration, "error");
  if (has_value(migration, "runs_at")) out += "; it runs at " + text_of(migration, "runs_at");
  out = printable(out) + "\n";
  if (done && member(migration, "report").is_object()) out += view_report(member(migration, "report"));
  return out;
}

std::string view_progress(const Json& migration) {
  std::string out = text_of(migration, "id") + " " + text_of(migration, "state");
  const Json& progress = member(migration, "progress");
  const std::string state = text_of(migration, "state");
  if (progress.is_object() &&
      (state == "precopy" || state == "granted")) {  // later nothing is copied any more
    out += "  round " + text_of(progress, "round") + "  " + bytes_of(progress, "done_bytes") + "/" +
           bytes_of(progress, "total_bytes") + "  dirty " + rate_of(progress, "dirty_bytes_per_second") +
           "  tx " + rate_of(progress, "throughput_bytes_per_second") + "  left " +
           bytes_of(progress, "remaining_bytes") + "  downtime ~" +
           (number_of(progress, "estimate_ms") > 0 ? span_of(progress, "estimate_ms") : "-") + "  ETA " +
           span_of(progress, "eta_ms");
  }
  if (flag_of(migration, "abort_requested")) out += "  (abort requested)";
  return printable(out);
}

}  // namespace ckpt::cli
