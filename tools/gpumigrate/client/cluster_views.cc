// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/cluster_views.h"

#include "tools/gpumigrate/client/short_text.h"
#include "tools/gpumigrate/client/table.h"
#include "tools/gpumigrate/client/views.h"

namespace ckpt::cli {
namespace {

std::string names_of(const Json& names) {
  std::string text;
  for (const Json& name : names)
    text += (text.empty() ? "" : ", ") + (name.is_string() ? name.get<std::string>() : name.dump());
  return text;
}

Cell state_of_image(const Json& image) {
  if (flag_of(image, "damaged")) return {"damaged", Tone::kBad};
  if (has_value(image, "suspect")) return {"suspect", Tone::kBad};
  return flag_of(image, "readable") ? Cell("whole", Tone::kGood) : Cell("out of reach", Tone::kWarning);
}

std::string age_of_image(const Json& image, const Layout& layout) {
  return layout.ages && member(image, "age_ms").is_number() ? short_age(number_of(image, "age_ms")) : "-";
}

std::string view_evacuations(const Json& evacuations, const Layout& layout) {
  if (evacuations.empty()) return "no evacuations\n";
  Table table({"ID",
               {"JOB", {.least = 8}},
               "STATE",
               {"FROM", {.rank = 3, .least = 8}},
               {"TO", {.rank = 2, .least = 8}},
               {"LOST", {.rank = 1, .right = true}},
               {"AGO", {.rank = 4, .right = true}},
               {"REASON", {.least = 10}},
               {"NOTE", {.rank = 5, .least = 10}},
               {"WHAT", {.rank = 6, .wide = true}},
               {"CREATED", {.rank = 7, .wide = true}}});
  for (const Json& e : evacuations) {
    table.add({text_of(e, "id"), text_of(e, "job_name"), text_of(e, "state"), text_of(e, "from"),
               text_of(e, "to"), short_span_of(e, "lost_ms"), age_of(e, "created", layout),
               text_of(e, "reason"), text_of(e, "note"),
               text_of(e, "outcome") + (flag_of(e, "urgent") ? "" : ", in time"), text_of(e, "created")});
  }
  return table.text(layout);
}

// Whether it led to a cordon.
static std::string cordon_of(const Json& finding) {
  if (flag_of(finding, "paused")) return "no (paused)";
  return flag_of(finding, "cordon") ? "yes" : "no";
}

std::string view_findings(const Json& findings, const Layout& layout) {
  if (findings.empty()) return "no findings\n";
  Table table({{"GPU", {.least = 8}},
               {"XID", {.right = true}},
               {"AGO", {.rank = 2, .right = true}},
               {"CORDON", {.rank = 1}},
               {"REASON", {.least = 20}},
               {"SOURCE", {.rank = 3, .wide = true}},
               {"TIME", {.rank = 4, .wide = true}}});
  for (const Json& f : findings) {
    table.add({text_of(f, "node") + ":" + text_of(f, "gpu"), text_of(f, "xid"), age_of(f, "time", layout),
               cordon_of(f), text_of(f, "reason"), text_of(f, "source"), text_of(f, "time")});
  }
  return table.text(layout);
}

std::string summary_of_rebalance(const Json& plan) {
  const std::size_t moves = member(plan, "moves").size();
  if (moves == 0) return "nothing to move: no GPU would become free";
  return std::to_string(moves) + (moves == 1 ? " move frees " : " moves free ") +
         names_of(member(plan, "freed")) + " (" + text_of(plan, "free_before") +
         " GPUs without a job before, " + text_of(plan, "free_after") + " after)" +
         (flag_of(plan, "exhaustive") ? "" : "; there may be better plans: too many to try all");
}

std::string state_of_rebalance_move(const Json& move, bool runs) {
  const std::string state = runs ? text_of(move, "state") : "planned";
  return has_value(move, "migration") ? state + " (" + text_of(move, "migration") + ")" : state;
}

std::string view_undecided(const Json& switches, const Layout& layout) {
  std::string out;
  for (const Json& one : switches) {
    const std::string away = names_of(member(one, "away"));
    const std::string id = text_of(one, "migration");
    const std::string what =
        away.empty() ? "its nodes are asked, after a full lease term their records decide"
                     : away + " is away; `gpumigrate resolve " + id + "` is your word that it is dead";
    out += paragraph("Migration " + id + " of " + text_of(one, "job") + " is not decided: " + what, layout);
  }
  return out;
}

std::string view_resting(const Json& images, const Layout& layout) {
  if (images.empty()) return "";
  Table table({"JOB", {"NAME", {.least = 8}}, {"IMAGE", {.least = 12}}});
  for (const Json& one : images)
    table.add({text_of(one, "job"), text_of(one, "name"), text_of(one, "image")});
  return paragraph(
             "Images of jobs that are not known (`gpumigrate resume NAME`, or `gpumigrate restore IMAGE`):",
             layout) +
         table.text(layout);
}

}  // namespace

std::string view_images(const Json& images, const Layout& layout) {
  Table table({{"IMAGE", {.least = 20}},
               {"JOB", {.least = 8}},
               {"AGE", {.right = true}},
               {"SIZE", {.rank = 1, .right = true}},
               {"NEW", {.rank = 3, .right = true}},
               {"PAUSE", {.rank = 4, .right = true}},
               {"IN", {.rank = 2}},
               "STATE",
               {"CREATED", {.rank = 5, .wide = true}},
               {"GPU MODEL", {.rank = 6, .wide = true}}});
  for (const Json& image : images) {
    table.add({text_of(image, "id"), text_of(image, "job_name"), age_of_image(image, layout),
               short_bytes_of(image, "state_bytes"), short_bytes_of(image, "new_bytes"),
               number_of(image, "pause_ms") > 0 ? short_span_of(image, "pause_ms") : "-",
               text_of(image, "tier"), state_of_image(image), text_of(image, "created"),
               text_of(image, "gpu_model")});
  }
  return table.text(layout);
}

std::string view_policy(const Json& policy, const Layout& layout) {
  const Json& breaker = member(policy, "breaker");
  std::string out = "automatic moves: ";
  if (flag_of(breaker, "open"))
    out += "STOPPED since " + text_of(breaker, "since") + ": " + text_of(breaker, "reason") +
           " (`gpumigrate policy reset-breaker`)";
  else
    out += "on, " + text_of(breaker, "recent") + " of at most " + text_of(breaker, "limit") + " within " +
           short_span_of(breaker, "window_ms");
  out = paragraph(out, layout);
  for (const Json& paused : member(policy, "paused")) {
    const std::string node = paused.is_string() ? paused.get<std::string>() : paused.dump();
    out += paragraph("paused: " + node + " (`gpumigrate policy resume " + node + "`)", layout);
  }
  return out;
}

std::string view_health(const Json& health, const Layout& layout) {
  return view_policy(member(health, "policy"), layout) + "\n" +
         view_evacuations(member(health, "evacuations"), layout) + "\n" +
         view_findings(member(health, "findings"), layout);
}

std::string view_rebalance(const Json& plan, const Layout& layout) {
  const bool runs = has_value(plan, "state");
  std::string out = paragraph(
      (runs ? "rebalance " + text_of(plan, "state") : "dry run") + ": " + summary_of_rebalance(plan), layout);
  Table table({{"JOB", {.least = 8}},
               {"FROM", {.least = 8}},
               {"TO", {.least = 8}},
               {"NEEDS", {.rank = 2, .right = true}},
               {"REASON", {.rank = 1, .least = 8}},
               "STATE"});
  std::string errors;
  for (const Json& move : member(plan, "moves")) {
    table.add({text_of(move, "name"), text_of(move, "from"), text_of(move, "to"),
               short_bytes_of(move, "needed_bytes"), text_of(move, "reason"),
               state_of_rebalance_move(move, runs)});
    if (has_value(move, "error"))
      errors += paragraph(text_of(move, "name") + ": " + text_of(move, "error"), layout);
  }
  if (!table.empty()) out += table.text(layout) + errors;
  for (const Json& job : member(plan, "fixed"))
    out += paragraph("stays: " + text_of(job, "name") + " (" + text_of(job, "reason") + ")", layout);
  return out;
}

std::string view_recovery(const Json& answer, const Layout& layout) {
  const Json& found = member(answer, "found");
  Table table({"FOUND", {"NODE", {.rank = 1, .least = 8}}, {"JOB", {.rank = 2}}, {"WHAT", {.least = 20}}});
  for (const Json& one : found) {
    const std::string job = text_of(one, "job");
    table.add({text_of(one, "kind"), text_of(one, "node"), job.empty() ? "-" : job, text_of(one, "text")});
  }
  std::string out = table.empty()
                        ? paragraph("Nothing was found that this coordinator's store did not know.", layout)
                        : table.text(layout);
  out += view_undecided(member(answer, "undecided"), layout);
  out += view_resting(member(answer, "images_of_unknown_jobs"), layout);
  const std::string away = names_of(member(answer, "nodes_away"));
  if (!away.empty()) out += paragraph("Not heard yet: " + away + ". What runs there is not known.", layout);
  if (has_value(answer, "open_until"))
    out +=
        paragraph("What nodes report is taken in until " + clock_text(text_of(answer, "open_until"), layout) +
                      ". What was taken in moves by nothing but orders until `gpumigrate cluster confirm`.",
                  layout);
  if (!found.empty())
    out += paragraph(
        "Cordons, drains, protection schedules, and what jobs printed before their last move are not known.",
        layout);
  return out;
}

}  // namespace ckpt::cli
