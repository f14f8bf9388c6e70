// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/views.h"

#include <algorithm>
#include <cstdio>

#include "libckpt/record/document.h"
#include "tools/gpumigrate/client/list_views.h"
#include "tools/gpumigrate/client/short_text.h"

namespace ckpt::cli {
namespace {

constexpr std::size_t kFieldColumns = 14;  // width of a field's name, with the blanks around it

// Removes the fraction of a time like "2026-01-01T00:00:00.000Z".
std::string whole_seconds(const std::string& text) {
  const std::size_t point = text.find('.');
  return point == std::string::npos ? text : text.substr(0, point) + "Z";
}

std::string place_of(const api::Candidate& candidate) {
  return candidate.node + ":" + std::to_string(candidate.gpu);
}

std::string score_of(const api::Candidate& candidate) {
  char score[32] = "-";
  if (candidate.score) std::snprintf(score, sizeof score, "%+.2f", *candidate.score);
  return score;
}

// Shows every GPU as a row: whether it is suitable, its score and its reasons.
std::string view_each_candidate(const std::vector<api::Candidate>& candidates, const Layout& layout) {
  Table table(
      {{"GPU", {.min_width = 8}}, "SUITABLE", {"SCORE", {.rank = 1}}, {"REASONS", {.min_width = 20}}});
  for (const api::Candidate& candidate : candidates) {
    table.add({place_of(candidate), candidate.suitable ? "yes" : "no", score_of(candidate),
               joined_or_dash(candidate.reasons, "; ")});
  }
  return table.text(layout);
}

// Shows the reasons of the chosen GPU, and the number of GPUs that each cause rules out.
std::string sum_up_candidates(const std::vector<api::Candidate>& candidates, const Layout& layout) {
  std::vector<std::pair<std::string, unsigned>> counts;
  std::string chosen;
  for (const api::Candidate& candidate : candidates) {
    if (candidate.suitable && chosen.empty())
      chosen = place_of(candidate) + ", score " + score_of(candidate) + ": " +
               joined_or_dash(candidate.reasons, "; ");
    const std::string cause = candidate.suitable ? "suitable" : candidate.cause.value_or("unsuitable");
    const auto same =
        std::find_if(counts.begin(), counts.end(), [&](const auto& count) { return count.first == cause; });
    if (same == counts.end())
      counts.emplace_back(cause, 1);
    else
      ++same->second;
  }
  std::string sum;
  for (const auto& [cause, count] : counts)
    sum += (sum.empty() ? "" : ", ") + std::to_string(count) + " " + cause;
  std::string out = chosen.empty() ? "" : field_line("chosen", chosen, layout);
  return sum.empty() ? out : out + field_line("GPUs", sum + " (-v shows each)", layout);
}

std::string view_candidates(const std::vector<api::Candidate>& candidates, bool each, const Layout& layout) {
  return each || layout.wide ? view_each_candidate(candidates, layout)
                             : sum_up_candidates(candidates, layout);
}

}  // namespace

std::string paragraph(const std::string& text, const Layout& layout) {
  std::string out;
  for (const std::string& line : wrapped(printable(text), layout.width)) out += line + "\n";
  return out;
}

std::string field_line(const char* name, const std::string& value, const Layout& layout, Tone tone) {
  std::string head = std::string("  ") + name;
  head.resize(std::max(kFieldColumns, head.size() + 1), ' ');
  const std::size_t width = layout.width == kUnlimited        ? kUnlimited
                            : layout.width > head.size() + 10 ? layout.width - head.size()
                                                              : 10;
  std::string out;
  for (const std::string& line : wrapped(printable(value), width)) {
    out += head + coloured(line, tone, layout) + "\n";
    head.assign(head.size(), ' ');
  }
  return out;
}

std::string options_text(const api::MigrateOptions& options) {
  std::string out;
  const auto add = [&out](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  if (options.codec) add("codec " + *options.codec);
  if (options.shadow_memory_bytes > 0) add("shadow memory " + short_bytes(options.shadow_memory_bytes));
  if (options.slowdown_percent > 0) add("slowdown " + Json(options.slowdown_percent).dump() + "%");
  if (options.bandwidth > 0) add("bandwidth " + short_rate(options.bandwidth));
  if (options.max_rounds > 0) add("at most " + std::to_string(options.max_rounds) + " rounds");
  if (options.connections == "reset") add("connections reset");
  return out;
}

namespace {

// Returns "job j3" if all of its ranks move, otherwise "ranks 1, 2 of train".
std::string what_moves(const api::MovePlan& plan) {
  const std::vector<std::uint32_t>& ranks = plan.ranks;
  if (ranks.size() == plan.size) return "job " + plan.job;
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return out + " of " + plan.job_name;
}

}  // namespace

std::string view_plan(const api::MovePlan& plan, bool each, const Layout& layout) {
  std::string out = "dry run: " + what_moves(plan) + " at " + plan.from;
  if (plan.to) {
    const std::string options = options_text(plan.options);
    out += " would move to " + *plan.to + " (" + plan.strategy + ", state " + short_bytes(plan.state_bytes) +
           (options.empty() ? "" : ", " + options) + ")";
    out = paragraph(out, layout);
    if (plan.expected_pause_ms.value_or(0) > 0)
      out += paragraph("expected pause: " + short_span(*plan.expected_pause_ms) +
                           (plan.expected_pause_from == "estimate"
                                ? " (an estimate: the job has not moved in this way yet)"
                                : " (from its last move)"),
                       layout);
  } else {
    out = paragraph(out + " cannot move: " + plan.reason.value_or("-"), layout);
  }
  for (const std::string& warning : plan.warnings) out += paragraph("warning: " + warning, layout);
  return out + view_candidates(plan.candidates, each, layout);
}

std::string view_displaced(const std::vector<api::Displacement>& displaced, const std::string& tense,
                           const Layout& layout) {
  std::string out;
  for (const api::Displacement& job : displaced) {
    const std::string how = job.to ? "moved live to " + *job.to : "parked: no other GPU can hold the job";
    out += paragraph(job.name + " (" + job.job + ", priority " + std::to_string(job.priority) + ", at " +
                         job.from + ") " + tense + how,
                     layout);
  }
  return out;
}

std::string view_run_plan(const api::RunPlan& plan, bool each, const Layout& layout) {
  return paragraph("dry run: the job would " +
                       (plan.to ? "start at " + *plan.to : "not start: " + plan.reason.value_or("-")),
                   layout) +
         view_displaced(plan.displaced, "would be ", layout) + view_candidates(plan.candidates, each, layout);
}

std::string view_event(const api::Event& event, const Layout& layout) {
  constexpr std::string_view kIndent = "    ";
  std::string out = whole_seconds(event.time) + "  " + event.kind;
  for (const auto* subject : {&event.node, &event.job, &event.migration})
    if (*subject) out += "  " + **subject;
  out = printable(out + "  " + event.text);
  if (layout.width == kUnlimited || width_of(out) <= layout.width) return out + "\n";
  std::string lines;
  for (const std::string& line : wrapped(out, layout.width - kIndent.size()))
    lines += std::string(lines.empty() ? "" : kIndent) + line + "\n";
  return lines;
}

namespace {

// Shows the largest pieces in the order of time, and the sum of the other pieces.
std::string view_breakdown(const api::PauseBreakdown& pieces) {
  constexpr std::size_t kShown = 3;
  const std::pair<double, const char*> named[] = {
      {pieces.quiesce, "quiesce"}, {pieces.final_copy, "last copy"},
      {pieces.verify, "verify"},   {pieces.communicators, "communicators"},
      {pieces.commit, "commit"},   {pieces.context, "context"},
      {pieces.host, "process"},    {pieces.fill, "fill"},
      {pieces.restore, "restore"}, {pieces.resume, "resume"}};
  std::vector<double> sizes;
  for (const auto& [piece, name] : named) sizes.push_back(piece);
  std::sort(sizes.rbegin(), sizes.rend());
  const double least = sizes[kShown - 1];
  std::string out;
  double others = 0;
  std::size_t shown = 0;
  for (const auto& [piece, name] : named) {
    if (piece <= 0) continue;
    if (piece < least || shown == kShown) {
      others += piece;
      continue;
    }
    shown++;
    out += (out.empty() ? "" : ", ") + std::string(name) + " " + short_span(piece);
  }
  if (others > 0) out += ", other " + short_span(others);
  return out.empty() ? "-" : out;
}

// Returns a text like "77.5 ms (limit 200 ms: kept; forecast 123 ms; bound 61 ms by link)".
std::string pause_text(const api::MigrationReport& report) {
  std::string out = span_or_dash(report.downtime_ms);
  std::string notes;
  const auto add = [&notes](const std::string& text) { notes += (notes.empty() ? "" : "; ") + text; };
  if (report.limit_kept)
    add("limit " + span_or_dash(report.max_downtime_ms) + ": " + (*report.limit_kept ? "kept" : "EXCEEDED"));
  if (report.estimate_ms) add("forecast " + short_span(*report.estimate_ms));
  if (report.bound_ms) add("bound " + short_span(*report.bound_ms) + " by " + report.bound_by.value_or("-"));
  return notes.empty() ? out : out + " (" + notes + ")";
}

// Shows the most pause time that `gpumigrate run` would have saved for the job, and the least pause of a live
// move.
std::string under_run_text(const api::ManagedRunEstimate& saved) {
  return "at most " + short_span(saved.device_ms) + " for " + short_bytes(saved.device_bytes) +
         " of device memory, which would be copied before the pause; a live move pauses for at least " +
         short_span(saved.bound_ms) + ", or at least " + span_or_dash(saved.bound_all_dirty_ms) +
         " if all memory is dirty";
}

std::string view_report(const api::MigrationReport& report, const api::MigrateOptions& options,
                        const Layout& layout) {
  const bool exceeded = !report.limit_kept.value_or(true);
  std::string out = field_line("pause", pause_text(report), layout, exceeded ? Tone::kWarning : Tone::kPlain);
  std::string spent = view_breakdown(report.downtime_breakdown_ms.value_or(api::PauseBreakdown()));
  if (options.bandwidth > 0) spent += "; link capped at " + short_rate(options.bandwidth);
  out += field_line("spent in", spent, layout);
  if (report.under_run) out += field_line("run saves", under_run_text(*report.under_run), layout);
  out += field_line("copied",
                    bytes_or_dash(report.sent_bytes) + " in " +
                        (report.rounds ? std::to_string(*report.rounds) : "-") + " rounds, " +
                        bytes_or_dash(report.wire_bytes) + " on the wire; " +
                        (report.verified.value_or(false) ? "verified equal" : "NOT verified"),
                    layout);
  out += field_line("rates",
                    "link " + rate_or_dash(report.link_bytes_per_second) + ", scan " +
                        rate_or_dash(report.scan_bytes_per_second) + ", codec " + report.codec.value_or("-"),
                    layout);
  for (const std::string& remark : report.remarks)
    out += field_line("remark", remark, layout, Tone::kWarning);
  return out;
}

}  // namespace

std::string view_outcome(const api::Migration& migration, const Layout& layout) {
  const std::string result = migration.result.value_or("-");
  const bool done = result == "done";
  std::string out = (done ? "moved " : result + ": ") + migration.job_name + " (" + migration.job + ") " +
                    migration.from + " -> " + migration.to;
  const auto& report = migration.report;
  if (report && report->total_ms) out += " in " + span_or_dash(report->total_ms);
  out += " (" + migration.id + ", " + migration.strategy + ")";
  if (migration.error) out += "; " + *migration.error;
  if (!done && migration.runs_at) out += "; the job runs at " + *migration.runs_at;
  out = paragraph(out, layout);
  return done && report ? out + view_report(*report, migration.options, layout) : out;
}

std::string view_change(const api::Migration& before, const api::Migration& after, const std::string& limit) {
  std::string from;
  std::string to;
  if (limit == "bandwidth") {
    const auto rate_of = [](const api::Migration& migration) {
      const std::uint64_t rate = migration.options.bandwidth;
      return rate > 0 ? short_rate(rate) : std::string("no limit");
    };
    from = rate_of(before);
    to = rate_of(after);
  } else {
    from = span_or_dash(before.options.max_downtime_ms);
    to = span_or_dash(after.options.max_downtime_ms);
  }
  // The unit is shown once if both values have it: "12 → 40 MiB/s".
  const std::size_t unit = from.find(' ');
  if (unit != std::string::npos && to.ends_with(from.substr(unit)) && from != "no limit") from.resize(unit);
  return printable(after.id + " " + after.job_name + ": " + limit + " " + from + " → " + to) + "\n";
}

}  // namespace ckpt::cli
