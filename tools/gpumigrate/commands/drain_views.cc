// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/commands/drain_views.h"

#include <map>

#include "tools/gpumigrate/client/short_text.h"
#include "tools/gpumigrate/client/table.h"

namespace ckpt::cli {
namespace {

// Returns a text like "1 blocked, 6 moved".
std::string counts_of(const std::vector<api::DrainJob>& jobs) {
  std::map<std::string, int> counts;
  for (const api::DrainJob& job : jobs) counts[job.state]++;
  std::string out;
  for (const auto& [state, count] : counts)
    out += (out.empty() ? "" : ", ") + std::to_string(count) + " " + state;
  return out.empty() ? "no jobs" : out;
}

std::string outcome_of(const api::Drain& drain) {
  const std::string& place = drain.place;
  const std::string result = drain.result.value_or("-");
  const std::string uncordon = "; it stays cordoned until `gpumigrate uncordon " + place + "`";
  if (drain.open) return place + " is being drained: " + counts_of(drain.jobs);
  if (result == "empty" && drain.jobs.empty()) return place + " is empty: it had no jobs" + uncordon;
  if (result == "empty") return place + " is empty: " + counts_of(drain.jobs) + uncordon;
  if (result == "deadline")
    return place + " is not empty, and the deadline has passed: " + counts_of(drain.jobs) + uncordon;
  if (result == "cancelled")
    return "The drain of " + place + " was cancelled (" + drain.cancelled.value_or("-") +
           "): " + counts_of(drain.jobs);
  return place + " is not empty: " + counts_of(drain.jobs) + uncordon;
}

// Returns the reason of each GPU for each job that no GPU can take, or a hint to use -v.
template <class Job>
std::string obstacles_text(const std::vector<Job>& jobs, bool each, const Layout& layout) {
  std::string out;
  for (const Job& job : jobs) {
    if (job.obstacles.empty()) continue;
    if (!each) return shortened("-v shows the reason for each GPU", layout.width) + "\n";
    for (const std::string& obstacle : job.obstacles) {
      std::string indent = "  ";
      for (const std::string& part : wrapped(printable(job.name + ": " + obstacle),
                                             layout.width == kUnlimited ? kUnlimited : layout.width - 4)) {
        out += indent + part + "\n";
        indent = "    ";
      }
    }
  }
  return out;
}

}  // namespace

std::string view_cordon(const api::Cordon& cordon) {
  std::string out = cordon.place + " is cordoned by " + cordon.owner;
  if (cordon.reason) out += ": " + *cordon.reason;
  return printable(out);
}

// Returns a warning for each GPU that accepts no job because of a recent finding.
static std::string view_suspects(const std::vector<api::SuspectGpu>& suspects) {
  std::string out;
  for (const api::SuspectGpu& suspect : suspects)
    out += printable("warning: " + suspect.place + " is " + suspect.fault.text +
                     " (the GPU gets no job until then; if the GPU is healthy, `gpumigrate uncordon " +
                     suspect.place + " --forgive` ends this restriction)") +
           "\n";
  return out;
}

std::string view_uncordon(const api::Uncordoned& answer) {
  std::string out;
  for (const api::Cordon& cordon : answer.cleared)
    out += printable("removed: " + view_cordon(cordon) + " since " + cordon.since) + "\n";
  if (answer.cleared.empty()) out += printable(answer.place + " was not cordoned") + "\n";
  for (const api::Cordon& cordon : answer.left)
    out += printable("remains: " + view_cordon(cordon) + " (`gpumigrate uncordon " + cordon.place +
                     "` removes it)") +
           "\n";
  for (const api::ForgivenGpu& forgiven : answer.forgiven)
    out += printable("forgiven: " + forgiven.place + ": " + forgiven.reason.value_or("-")) + "\n";
  return out + view_suspects(answer.suspect);
}

std::string view_drains(const std::vector<api::Drain>& drains, const Layout& layout) {
  Table table({"ID",
               {"PLACE", {.min_width = 8}},
               "RESULT",
               {"JOBS", {.rank = 2, .right = true}},
               {"GONE", {.rank = 1, .right = true}},
               {"AGO", {.rank = 3, .right = true}},
               {"REASON", {.rank = 4, .min_width = 8}},
               {"STARTED", {.rank = 5, .wide = true}},
               {"DEADLINE", {.rank = 6, .wide = true}}});
  for (const api::Drain& drain : drains) {
    table.add({drain.id, drain.place, drain.open ? "running" : drain.result.value_or("-"),
               std::to_string(drain.jobs.size()), std::to_string(drain.jobs_gone),
               age_of(drain.started, layout), drain.reason.value_or("-"), drain.started, drain.deadline});
  }
  return table.text(layout);
}

std::string view_drain(const api::Drain& drain, bool each, const Layout& layout) {
  std::string out;
  if (!drain.jobs.empty()) {
    Table table({{"ID", {.rank = 4}},
                 {"JOB", {.min_width = 8}},
                 "STATE",
                 {"FROM", {.rank = 3}},
                 {"TO", {.rank = 1}},
                 {"SIZE", {.rank = 5, .right = true}},
                 {"PAUSE", {.rank = 2, .right = true}},
                 {"REASON", {.min_width = 44}}});
    for (const api::DrainJob& job : drain.jobs) {
      table.add({job.job, job.name, job.state, job.from, job.to.value_or("-"), short_bytes(job.state_bytes),
                 span_or_dash(job.downtime_ms), job.reason.value_or("-")});
    }
    out = table.text(layout) + obstacles_text(drain.jobs, each, layout);
  }
  for (const std::string& line : wrapped(printable(drain.id + ": " + outcome_of(drain)), layout.width))
    out += line + "\n";
  return out;
}

std::string view_drain_plan(const api::DrainPlan& plan, bool each, const Layout& layout) {
  if (plan.jobs.empty()) return printable("dry run: " + plan.place + " has no jobs to move") + "\n";
  Table table({{"ID", {.rank = 5}},
               {"JOB", {.min_width = 8}},
               {"PRIO", {.rank = 3, .right = true}},
               {"SIZE", {.rank = 4, .right = true}},
               {"FROM", {.rank = 2}},
               "TO",
               {"PAUSE", {.rank = 1, .right = true}},
               {"REASON", {.min_width = 44}}});
  for (const api::DrainPlanJob& job : plan.jobs) {
    const bool estimated = job.expected_pause_from == "estimate";
    table.add({job.job, job.name, std::to_string(job.priority), short_bytes(job.state_bytes), job.from,
               job.to.value_or("-"), (estimated ? "~" : "") + span_or_dash(job.expected_pause_ms),
               (job.passing ? "temporary: " : "") + job.reason.value_or("-")});
  }
  std::string out = table.text(layout) + obstacles_text(plan.jobs, each, layout);
  for (const api::DrainPlanJob& job : plan.jobs) {
    if (!job.warning) continue;
    const std::string warning = "warning: " + job.name + ": " + *job.warning;
    for (const std::string& line : wrapped(printable(warning), layout.width)) out += line + "\n";
  }
  const std::string end = "dry run: " + plan.place + ", " + std::to_string(plan.parallel) +
                          " jobs at a time in this order" +
                          (plan.possible ? "" : "; some jobs cannot be moved") +
                          "; ~ is an estimate: the job has not moved in this way yet";
  for (const std::string& line : wrapped(printable(end), layout.width)) out += line + "\n";
  return out;
}

std::string view_drain_job(const api::DrainJob& job) {
  std::string out = job.name + " (" + job.job + ") " + job.state + "  " + job.from;
  if (job.to) out += " -> " + *job.to;
  if (job.downtime_ms) out += "  downtime " + short_span(*job.downtime_ms);
  if (job.reason) out += "  " + *job.reason;
  return printable(out);
}

}  // namespace ckpt::cli
