// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/commands/drain_views.h"

#include <map>

#include "tools/gpumigrate/client/short_text.h"
#include "tools/gpumigrate/client/table.h"

namespace ckpt::cli {
namespace {

// "6 moved, 1 blocked".
std::string counts_of(const Json& jobs) {
  std::map<std::string, int> counts;
  for (const Json& job : jobs) counts[text_of(job, "state")]++;
  std::string out;
  for (const auto& [state, count] : counts)
    out += (out.empty() ? "" : ", ") + std::to_string(count) + " " + state;
  return out.empty() ? "no jobs" : out;
}

std::string outcome_of(const Json& drain) {
  const std::string place = text_of(drain, "place");
  const Json& jobs = member(drain, "jobs");
  const std::string result = text_of(drain, "result");
  const std::string uncordon = "; it stays cordoned until `gpumigrate uncordon " + place + "`";
  if (flag_of(drain, "open")) return place + " is being drained: " + counts_of(jobs);
  if (result == "empty" && jobs.empty()) return place + " is empty: nothing to do" + uncordon;
  if (result == "empty") return place + " is empty: " + counts_of(jobs) + uncordon;
  if (result == "deadline")
    return place + " is not empty, the deadline has passed: " + counts_of(jobs) + uncordon;
  if (result == "cancelled")
    return "the drain of " + place + " was cancelled (" + text_of(drain, "cancelled") +
           "): " + counts_of(jobs);
  return place + " is not empty: " + counts_of(jobs) + uncordon;
}

// Of each job that no GPU takes: the reason of each GPU, or how to see them.
std::string obstacles_text(const Json& jobs, bool each, const Layout& layout) {
  std::string out;
  for (const Json& job : jobs) {
    const Json& obstacles = member(job, "obstacles");
    if (obstacles.empty()) continue;
    if (!each) return shortened("-v shows the reason of each GPU", layout.width) + "\n";
    for (const Json& obstacle : obstacles) {
      const std::string line =
          text_of(job, "name") + ": " + (obstacle.is_string() ? obstacle.get<std::string>() : "?");
      std::string indent = "  ";
      for (const std::string& part :
           wrapped(printable(line), layout.width == kUnlimited ? kUnlimited : layout.width - 4)) {
        out += indent + part + "\n";
        indent = "    ";
      }
    }
  }
  return out;
}

}  // namespace

std::string view_cordon(const Json& cordon) {
  std::string out = text_of(cordon, "place") + " is cordoned by " + text_of(cordon, "owner");
  if (has_value(cordon, "reason")) out += ": " + text_of(cordon, "reason");
  return printable(out);
}

// "warning: node-a:0 takes no job before 10:58:25Z: Xid 79 ... "
static std::string view_suspects(const Json& suspects) {
  std::string out;
  if (!suspects.is_array()) return out;
  for (const Json& suspect : suspects)
    out += printable("warning: " + text_of(suspect, "place") + " is " + text_of(suspect, "text") +
                     " (it takes no job until then; `gpumigrate uncordon " + text_of(suspect, "place") +
                     " --forgive` is your word that it is sound)") +
           "\n";
  return out;
}

std::string view_uncordon(const Json& answer) {
  std::string out;
  const std::string place = text_of(answer, "place");
  for (const Json& cordon : member(answer, "cleared"))
    out += printable("removed: " + view_cordon(cordon) + " since " + text_of(cordon, "since")) + "\n";
  if (member(answer, "cleared").empty()) out += printable(place + " was not cordoned") + "\n";
  for (const Json& cordon : member(answer, "left"))
    out += printable("still: " + view_cordon(cordon) + " (`gpumigrate uncordon " + text_of(cordon, "place") +
                     "`)") +
           "\n";
  for (const Json& forgiven : member(answer, "forgiven"))
    out += printable("forgiven: " + text_of(forgiven, "place") + ": " + text_of(forgiven, "reason")) + "\n";
  return out + view_suspects(member(answer, "suspect"));
}

std::string view_drains(const Json& drains, const Layout& layout) {
  Table table({"ID",
               {"PLACE", {.least = 8}},
               "RESULT",
               {"JOBS", {.rank = 2, .right = true}},
               {"GONE", {.rank = 1, .right = true}},
               {"AGO", {.rank = 3, .right = true}},
               {"REASON", {.rank = 4, .least = 8}},
               {"STARTED", {.rank = 5, .wide = true}},
               {"DEADLINE", {.rank = 6, .wide = true}}});
  for (const Json& drain : drains) {
    table.add({text_of(drain, "id"), text_of(drain, "place"),
               flag_of(drain, "open") ? "running" : text_of(drain, "result"),
               std::to_string(member(drain, "jobs").size()), text_of(drain, "jobs_gone"),
               age_of(drain, "started", layout), text_of(drain, "reason"), text_of(drain, "started"),
               text_of(drain, "deadline")});
  }
  return table.text(layout);
}

std::string view_drain(const Json& drain, bool each, const Layout& layout) {
  std::string out;
  const Json& jobs = member(drain, "jobs");
  if (!jobs.empty()) {
    Table table({{"ID", {.rank = 4}},
                 {"JOB", {.least = 8}},
                 "STATE",
                 {"FROM", {.rank = 3}},
                 {"TO", {.rank = 1}},
                 {"SIZE", {.rank = 5, .right = true}},
                 {"PAUSE", {.rank = 2, .right = true}},
                 {"REASON", {.least = 44}}});
    for (const Json& job : jobs) {
      table.add({text_of(job, "job"), text_of(job, "name"), text_of(job, "state"), text_of(job, "from"),
                 text_of(job, "to"), short_bytes_of(job, "state_bytes"), short_span_of(job, "downtime_ms"),
                 text_of(job, "reason")});
    }
    out = table.text(layout) + obstacles_text(jobs, each, layout);
  }
  for (const std::string& line :
       wrapped(printable(text_of(drain, "id") + ": " + outcome_of(drain)), layout.width))
    out += line + "\n";
  return out;
}

std::string view_drain_plan(const Json& plan, bool each, const Layout& layout) {
  const Json& jobs = member(plan, "jobs");
  if (jobs.empty())
    return printable("dry run: " + text_of(plan, "place") + " is empty: nothing to do") + "\n";
  Table table({{"ID", {.rank = 5}},
               {"JOB", {.least = 8}},
               {"PRIO", {.rank = 3, .right = true}},
               {"SIZE", {.rank = 4, .right = true}},
               {"FROM", {.rank = 2}},
               "TO",
               {"PAUSE", {.rank = 1, .right = true}},
               {"REASON", {.least = 44}}});
  for (const Json& job : jobs) {
    const bool estimated = text_of(job, "expected_pause_from") == "estimate";
    table.add({text_of(job, "job"), text_of(job, "name"), text_of(job, "priority"),
               short_bytes_of(job, "state_bytes"), text_of(job, "from"), text_of(job, "to"),
               (estimated ? "~" : "") + short_span_of(job, "expected_pause_ms"),
               (flag_of(job, "passing") ? "for now: " : "") + text_of(job, "reason")});
  }
  std::string out = table.text(layout) + obstacles_text(jobs, each, layout);
  for (const Json& job : jobs) {
    if (!has_value(job, "warning")) continue;
    const std::string warning = "warning: " + text_of(job, "name") + ": " + text_of(job, "warning");
    for (const std::string& line : wrapped(printable(warning), layout.width)) out += line + "\n";
  }
  const std::string end = "dry run: " + text_of(plan, "place") + ", " + text_of(plan, "parallel") +
                          " at a time, in this order" +
                          (flag_of(plan, "possible") ? "" : "; not all can be moved") +
                          "; ~: estimated, the job has not moved so yet";
  for (const std::string& line : wrapped(printable(end), layout.width)) out += line + "\n";
  return out;
}

std::string view_drain_job(const Json& job) {
  std::string out = text_of(job, "name") + " (" + text_of(job, "job") + ") " + text_of(job, "state") + "  " +
                    text_of(job, "from");
  if (has_value(job, "to")) out += " -> " + text_of(job, "to");
  if (has_value(job, "downtime_ms")) out += "  downtime " + short_span_of(job, "downtime_ms");
  if (has_value(job, "reason")) out += "  " + text_of(job, "reason");
  return printable(out);
}

}  // namespace ckpt::cli
