// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/commands/drain_views.h"

#include <map>

#include "tools/common/units.h"
#include "tools/gpumigrate/client/table.h"

namespace ckpt::cli {
namespace {

std::string bytes_of(const Json& object, const char* field) {
  return member(object, field).is_number() ? tools::format_bytes(number_of(object, field)) : "-";
}
std::string span_of(const Json& object, const char* field) {
  return member(object, field).is_number() ? tools::format_milliseconds(number_of(object, field)) : "-";
}

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

}  // namespace

std::string view_cordon(const Json& cordon) {
  std::string out = text_of(cordon, "place") + " is cordoned by " + text_of(cordon, "owner");
  if (has_value(cordon, "reason")) out += ": " + text_of(cordon, "reason");
  return printable(out);
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
  return out;
}

std::string view_drains(const Json& drains) {
  Table table({"ID", "PLACE", "RESULT", "JOBS", "GONE", "STARTED", "DEADLINE", "REASON"});
  for (const Json& drain : drains) {
    table.add({text_of(drain, "id"), text_of(drain, "place"),
               flag_of(drain, "open") ? "running" : text_of(drain, "result"),
               std::to_string(member(drain, "jobs").size()), text_of(drain, "jobs_gone"),
               text_of(drain, "started"), text_of(drain, "deadline"), text_of(drain, "reason")});
  }
  return table.text();
}

std::string view_drain(const Json& drain) {
  std::string out;
  if (!member(drain, "jobs").empty()) {
    Table table({"ID", "JOB", "STATE", "FROM", "TO", "SIZE", "DOWNTIME", "REASON"});
    for (const Json& job : member(drain, "jobs")) {
      table.add({text_of(job, "job"), text_of(job, "name"), text_of(job, "state"), text_of(job, "from"),
                 text_of(job, "to"), bytes_of(job, "state_bytes"), span_of(job, "downtime_ms"),
                 text_of(job, "reason")});
    }
    out = table.text();
  }
  return out + printable(text_of(drain, "id") + ": " + outcome_of(drain)) + "\n";
}

std::string view_drain_plan(const Json& plan) {
  const Json& jobs = member(plan, "jobs");
  if (jobs.empty())
    return printable("dry run: " + text_of(plan, "place") + " is empty: nothing to do") + "\n";
  Table table({"ID", "JOB", "PRIORITY", "SIZE", "FROM", "TO", "PAUSE", "REASON"});
  for (const Json& job : jobs) {
    const bool estimated = text_of(job, "expected_pause_from") == "estimate";
    table.add({text_of(job, "job"), text_of(job, "name"), text_of(job, "priority"),
               bytes_of(job, "state_bytes"), text_of(job, "from"), text_of(job, "to"),
               (estimated ? "~" : "") + span_of(job, "expected_pause_ms"),
               (flag_of(job, "passing") ? "for now: " : "") + text_of(job, "reason")});
  }
  return table.text() +
         printable("dry run: " + text_of(plan, "place") + ", " + text_of(plan, "parallel") +
                   " at a time, in this order" + (flag_of(plan, "possible") ? "" : "; not all can be moved") +
                   "; ~: estimated, the job has not moved so yet") +
         "\n";
}

std::string view_drain_job(const Json& job) {
  std::string out = text_of(job, "name") + " (" + text_of(job, "job") + ") " + text_of(job, "state") + "  " +
                    text_of(job, "from");
  if (has_value(job, "to")) out += " -> " + text_of(job, "to");
  if (has_value(job, "downtime_ms")) out += "  downtime " + span_of(job, "downtime_ms");
  if (has_value(job, "reason")) out += "  " + text_of(job, "reason");
  return printable(out);
}

}  // namespace ckpt::cli
