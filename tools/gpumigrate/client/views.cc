// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/views.h"

#include <algorithm>
#include <cstdio>

#include "tools/gpumigrate/client/list_views.h"
#include "tools/gpumigrate/client/short_text.h"

namespace ckpt::cli {
namespace {

constexpr std::size_t kFieldColumns = 14;  // of a field's name, with the blanks around it

std::string rate_of(const Json& object, const char* field) {
  return member(object, field).is_number() ? short_rate(number_of(object, field)) : "-";
}

// The texts of a list in one cell.
std::string listed(const Json& list) {
  std::string out;
  for (const Json& item : list)
    out += (out.empty() ? "" : "; ") + (item.is_string() ? item.get<std::string>() : item.dump());
  return out.empty() ? "-" : out;
}

// "2026-01-01T00:00:00.000Z" without its fraction.
std::string time_of(const Json& object, const char* field) {
  const std::string text = text_of(object, field);
  const std::size_t point = text.find('.');
  return point == std::string::npos ? text : text.substr(0, point) + "Z";
}

std::string score_of(const Json& candidate) {
  char score[32] = "-";
  if (has_value(candidate, "score"))
    std::snprintf(score, sizeof score, "%+.2f", number_of(candidate, "score"));
  return score;
}

// Every GPU with its reasons.
std::string view_each_candidate(const Json& candidates, const Layout& layout) {
  Table table({{"GPU", {.least = 8}}, "SUITABLE", {"SCORE", {.rank = 1}}, {"REASONS", {.least = 20}}});
  for (const Json& candidate : candidates) {
    table.add({place_of(candidate), flag_of(candidate, "suitable") ? "yes" : "no", score_of(candidate),
               listed(member(candidate, "reasons"))});
  }
  return table.text(layout);
}

// The chosen one's reasons, and how many GPUs each cause rules out.
std::string sum_up_candidates(const Json& candidates, const Layout& layout) {
  std::vector<std::pair<std::string, unsigned>> counts;
  std::string chosen;
  for (const Json& candidate : candidates) {
    const bool suitable = flag_of(candidate, "suitable");
    if (suitable && chosen.empty())
      chosen = place_of(candidate) + ", score " + score_of(candidate) + ": " +
               listed(member(candidate, "reasons"));
    const std::string cause = suitable                        ? "suitable"
                              : has_value(candidate, "cause") ? text_of(candidate, "cause")
                                                              : "unsuitable";
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
  return sum.empty() ? out : out + field_line("GPUs", sum + " (-v: each)", layout);
}

std::string view_candidates(const Json& plan, bool each, const Layout& layout) {
  const Json& candidates = member(plan, "candidates");
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

std::string options_text(const Json& options) {
  std::string out;
  const auto add = [&out](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  if (has_value(options, "codec")) add("codec " + text_of(options, "codec"));
  if (number_of(options, "shadow_memory_bytes") > 0)
    add("shadow memory " + short_bytes_of(options, "shadow_memory_bytes"));
  if (number_of(options, "slowdown_percent") > 0)
    add("slowdown " + text_of(options, "slowdown_percent") + "%");
  if (number_of(options, "bandwidth") > 0) add("bandwidth " + rate_of(options, "bandwidth"));
  if (number_of(options, "max_rounds") > 0) add("at most " + text_of(options, "max_rounds") + " rounds");
  return out;
}

namespace {

// "job j3", or of a job of several ranks "ranks 1, 2 of train".
std::string what_moves(const Json& plan) {
  const Json& ranks = member(plan, "ranks");
  if (!ranks.is_array() || ranks.empty()) return "job " + text_of(plan, "job");
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    out += (i == 0 ? "" : ", ") +
           std::to_string(ranks[i].is_number_unsigned() ? ranks[i].get<std::uint64_t>() : 0);
  return out + " of " + text_of(plan, "job_name");
}

}  // namespace

std::string view_plan(const Json& plan, bool each, const Layout& layout) {
  std::string out = "dry run: " + what_moves(plan) + " at " + text_of(plan, "from");
  if (has_value(plan, "to")) {
    const std::string options = options_text(member(plan, "options"));
    out += " would move to " + text_of(plan, "to") + " (" + text_of(plan, "mode") + ", state " +
           short_bytes_of(plan, "state_bytes") + (options.empty() ? "" : ", " + options) + ")";
    out = paragraph(out, layout);
    if (number_of(plan, "expected_pause_ms") > 0)
      out += paragraph((text_of(plan, "expected_pause_from") == "estimate"
                            ? "estimated, as it has not moved so yet, it would pause for "
                            : "as its last move tells, it would pause for ") +
                           short_span_of(plan, "expected_pause_ms"),
                       layout);
  } else {
    out = paragraph(out + " cannot move: " + text_of(plan, "reason"), layout);
  }
  for (const Json& warning : member(plan, "warnings"))
    if (warning.is_string()) out += paragraph("warning: " + warning.get<std::string>(), layout);
  return out + view_candidates(plan, each, layout);
}

std::string view_displaced(const Json& displaced, const std::string& tense, const Layout& layout) {
  std::string out;
  for (const Json& job : displaced) {
    const std::string how =
        has_value(job, "to") ? "moved live to " + text_of(job, "to") : "parked: no other GPU can take it";
    out += paragraph(text_of(job, "name") + " (" + text_of(job, "job") + ", priority " +
                         text_of(job, "priority") + ", at " + text_of(job, "from") + ") " + tense + how,
                     layout);
  }
  return out;
}

std::string view_run_plan(const Json& plan, bool each, const Layout& layout) {
  const bool possible = has_value(plan, "to");
  return paragraph("dry run: the job would " + (possible ? "start at " + text_of(plan, "to")
                                                         : "not start: " + text_of(plan, "reason")),
                   layout) +
         view_displaced(member(plan, "displaced"), "would be ", layout) + view_candidates(plan, each, layout);
}

std::string view_event(const Json& event, const Layout& layout) {
  constexpr std::string_view kIndent = "    ";
  std::string out = time_of(event, "time") + "  " + text_of(event, "kind");
  for (const char* field : {"node", "job", "migration"}) {
    if (has_value(event, field)) out += "  " + text_of(event, field);
  }
  out = printable(out + "  " + text_of(event, "text"));
  if (layout.width == kUnlimited || width_of(out) <= layout.width) return out + "\n";
  std::string lines;
  for (const std::string& line : wrapped(out, layout.width - kIndent.size()))
    lines += std::string(lines.empty() ? "" : kIndent) + line + "\n";
  return lines;
}

namespace {

// The largest pieces in the order in which they follow one another, and the sum of the others.
std::string view_breakdown(const Json& pieces) {
  constexpr std::size_t kShown = 3;
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"quiesce", "quiesce"}, {"final", "last copy"},
      {"verify", "verify"},   {"communicators", "communicators"},
      {"commit", "commit"},   {"context", "context"},
      {"host", "process"},    {"fill", "fill"},
      {"restore", "restore"}, {"resume", "resume"}};
  std::vector<double> sizes;
  for (const auto& [field, name] : kNames) sizes.push_back(number_of(pieces, field));
  std::sort(sizes.rbegin(), sizes.rend());
  const double least = sizes[kShown - 1];
  std::string out;
  double others = 0;
  std::size_t shown = 0;
  for (const auto& [field, name] : kNames) {
    const double piece = number_of(pieces, field);
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

// "77.5 ms (limit 200 ms: kept; forecast 123 ms; bound 61 ms by link)"
std::string pause_text(const Json& report) {
  std::string out = short_span_of(report, "downtime_ms");
  std::string notes;
  const auto add = [&notes](const std::string& text) { notes += (notes.empty() ? "" : "; ") + text; };
  if (has_value(report, "limit_kept"))
    add("limit " + short_span_of(report, "max_downtime_ms") + ": " +
        (flag_of(report, "limit_kept") ? "kept" : "EXCEEDED"));
  if (has_value(report, "estimate_ms")) add("forecast " + short_span_of(report, "estimate_ms"));
  if (has_value(report, "bound_ms"))
    add("bound " + short_span_of(report, "bound_ms") + " by " + text_of(report, "bound_by"));
  return notes.empty() ? out : out + " (" + notes + ")";
}

std::string view_report(const Json& migration, const Layout& layout) {
  const Json& report = member(migration, "report");
  const Json& options = member(migration, "options");
  const bool exceeded = has_value(report, "limit_kept") && !flag_of(report, "limit_kept");
  std::string out = field_line("pause", pause_text(report), layout, exceeded ? Tone::kWarning : Tone::kPlain);
  std::string spent = view_breakdown(member(report, "downtime_breakdown_ms"));
  if (number_of(options, "bandwidth") > 0) spent += "; link capped at " + rate_of(options, "bandwidth");
  out += field_line("spent in", spent, layout);
  const Json& saved = member(report, "under_run");
  if (saved.is_object())
    out += field_line("under run",
                      "without at most " + short_span_of(saved, "device_ms") + " for " +
                          short_bytes_of(saved, "device_bytes") +
                          " of device memory; a live move is bound by " + short_span_of(saved, "bound_ms") +
                          ", with all of it dirty by " + short_span_of(saved, "bound_all_dirty_ms"),
                      layout);
  out += field_line("copied",
                    short_bytes_of(report, "sent_bytes") + " in " + text_of(report, "rounds") + " rounds, " +
                        short_bytes_of(report, "wire_bytes") + " on the wire; " +
                        (flag_of(report, "verified") ? "verified equal" : "NOT verified"),
                    layout);
  return out +
         field_line("rates",
                    "link " + rate_of(report, "link_bytes_per_second") + ", scan " +
                        rate_of(report, "scan_bytes_per_second") + ", codec " + text_of(report, "codec"),
                    layout);
}

}  // namespace

std::string view_outcome(const Json& migration, const Layout& layout) {
  const bool done = text_of(migration, "result") == "done";
  std::string out = (done ? "moved " : text_of(migration, "result") + ": ") + text_of(migration, "job_name") +
                    " (" + text_of(migration, "job") + ") " + text_of(migration, "from") + " -> " +
                    text_of(migration, "to");
  const Json& report = member(migration, "report");
  if (has_value(report, "total_ms")) out += " in " + short_span_of(report, "total_ms");
  out += " (" + text_of(migration, "id") + ", " + text_of(migration, "mode") + ")";
  if (has_value(migration, "error")) out += "; " + text_of(migration, "error");
  if (!done && has_value(migration, "runs_at")) out += "; it runs at " + text_of(migration, "runs_at");
  out = paragraph(out, layout);
  return done && report.is_object() ? out + view_report(migration, layout) : out;
}

std::string view_change(const Json& before, const Json& after, const std::string& limit) {
  const Json& old = member(before, "options");
  const Json& now = member(after, "options");
  std::string from;
  std::string to;
  if (limit == "bandwidth") {
    from = number_of(old, "bandwidth") > 0 ? rate_of(old, "bandwidth") : "no limit";
    to = number_of(now, "bandwidth") > 0 ? rate_of(now, "bandwidth") : "no limit";
  } else {
    from = short_span_of(old, "max_downtime_ms");
    to = short_span_of(now, "max_downtime_ms");
  }
  // "12 → 40 MiB/s" where the unit is the same.
  const std::size_t unit = from.find(' ');
  if (unit != std::string::npos && to.ends_with(from.substr(unit)) && from != "no limit") from.resize(unit);
  return printable(text_of(after, "id") + " " + text_of(after, "job_name") + ": " + limit + " " + from +
                   " → " + to) +
         "\n";
}

}  // namespace ckpt::cli
