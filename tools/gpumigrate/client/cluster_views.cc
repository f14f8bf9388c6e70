// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/cluster_views.h"

#include "tools/gpumigrate/client/short_text.h"
#include "tools/gpumigrate/client/table.h"
#include "tools/gpumigrate/client/views.h"

namespace ckpt::cli {
namespace {

Cell state_of_image(const api::Image& image) {
  if (image.damaged) return {"damaged", Tone::kBad};
  if (image.suspect) return {"suspect", Tone::kBad};
  return image.readable ? Cell("whole", Tone::kGood) : Cell("out of reach", Tone::kWarning);
}

std::string view_evacuations(const std::vector<api::Evacuation>& evacuations, const Layout& layout) {
  if (evacuations.empty()) return "no evacuations\n";
  Table table({"ID",
               {"JOB", {.min_width = 8}},
               "STATE",
               {"FROM", {.rank = 3, .min_width = 8}},
               {"TO", {.rank = 2, .min_width = 8}},
               {"LOST", {.rank = 1, .right = true}},
               {"AGO", {.rank = 4, .right = true}},
               {"REASON", {.min_width = 10}},
               {"NOTE", {.rank = 5, .min_width = 10}},
               {"WHAT", {.rank = 6, .wide = true}},
               {"CREATED", {.rank = 7, .wide = true}}});
  for (const api::Evacuation& e : evacuations) {
    table.add({e.id, e.job_name, e.state, e.from, e.to.value_or("-"), span_or_dash(e.lost_ms),
               age_of(e.created, layout), e.reason.value_or("-"), e.note.value_or("-"),
               e.outcome + (e.urgent ? "" : ", not urgent"), e.created});
  }
  return table.text(layout);
}

// Returns whether the finding led to a cordon, as text.
std::string cordon_of(const api::Finding& finding) {
  if (finding.paused) return "no (paused)";
  return finding.cordon ? "yes" : "no";
}

std::string view_findings(const std::vector<api::Finding>& findings, const Layout& layout) {
  if (findings.empty()) return "no findings\n";
  Table table({{"GPU", {.min_width = 8}},
               {"XID", {.right = true}},
               {"AGO", {.rank = 2, .right = true}},
               {"CORDON", {.rank = 1}},
               {"REASON", {.min_width = 20}},
               {"SOURCE", {.rank = 3, .wide = true}},
               {"TIME", {.rank = 4, .wide = true}}});
  for (const api::Finding& f : findings) {
    table.add({f.node + ":" + std::to_string(f.gpu), f.xid ? std::to_string(*f.xid) : "-",
               age_of(f.time, layout), cordon_of(f), f.reason.value_or("-"), f.source, f.time});
  }
  return table.text(layout);
}

std::string summary_of_rebalance(std::size_t moves, const api::RebalanceEffect& effect) {
  if (moves == 0) return "nothing to move: no GPU would become free";
  return std::to_string(moves) + (moves == 1 ? " move frees " : " moves free ") + joined(effect.freed, ", ") +
         " (" + std::to_string(effect.free_before) + " GPUs without a job before, " +
         std::to_string(effect.free_after) + " after)" +
         (effect.exhaustive ? "" : "; a better plan may exist: there are too many plans to try all");
}

std::string view_rebalance_moves(const std::string& head, const std::vector<api::RebalanceMove>& moves,
                                 const api::RebalanceEffect& effect, const Layout& layout) {
  std::string out = paragraph(head + ": " + summary_of_rebalance(moves.size(), effect), layout);
  Table table({{"JOB", {.min_width = 8}},
               {"FROM", {.min_width = 8}},
               {"TO", {.min_width = 8}},
               {"NEEDS", {.rank = 2, .right = true}},
               {"REASON", {.rank = 1, .min_width = 8}},
               "STATE"});
  std::string errors;
  for (const auto& [planned, state, migration, error] : moves) {
    table.add({planned.name, planned.from, planned.to, short_bytes(planned.needed_bytes), planned.reason,
               migration ? state + " (" + *migration + ")" : state});
    if (error) errors += paragraph(planned.name + ": " + *error, layout);
  }
  if (!table.empty()) out += table.text(layout) + errors;
  for (const api::FixedJob& job : effect.fixed)
    out += paragraph("stays: " + job.name + " (" + job.reason + ")", layout);
  return out;
}

std::string view_undecided(const std::vector<api::UndecidedMigration>& handovers, const Layout& layout) {
  std::string out;
  for (const api::UndecidedMigration& one : handovers) {
    const std::string away = joined(one.away, ", ");
    const std::string what =
        away.empty() ? "the coordinator requests the nodes' records, and decides by them after one lease term"
                     : away + (one.away.size() > 1 ? " are" : " is") +
                           " unreachable; if it is permanently lost, confirm that with " +
                           "`gpumigrate resolve " + one.migration + "`";
    out += paragraph("Migration " + one.migration + " of " + one.job + " is undecided: " + what, layout);
  }
  return out;
}

std::string view_resting(const std::vector<api::ImageOfUnknownJob>& images, const Layout& layout) {
  Table table({"JOB", {"NAME", {.min_width = 8}}, {"IMAGE", {.min_width = 12}}});
  std::string stuck;
  for (const api::ImageOfUnknownJob& one : images) {
    if (one.obstacle)
      stuck += paragraph(
          "Unknown job " + one.name + " (" + one.job + ") cannot be continued: " + *one.obstacle, layout);
    else
      table.add({one.job, one.name, one.image});
  }
  if (table.empty()) return stuck;
  return paragraph(
             "Images of unknown jobs (continue one with `gpumigrate resume NAME` or `gpumigrate restore "
             "IMAGE`):",
             layout) +
         table.text(layout) + stuck;
}

}  // namespace

std::string view_images(const std::vector<api::Image>& images, const Layout& layout) {
  Table table({{"IMAGE", {.min_width = 20}},
               {"JOB", {.min_width = 8}},
               {"AGE", {.right = true}},
               {"SIZE", {.rank = 1, .right = true}},
               {"NEW", {.rank = 3, .right = true}},
               {"PAUSE", {.rank = 4, .right = true}},
               {"IN", {.rank = 2}},
               "STATE",
               {"CREATED", {.rank = 5, .wide = true}},
               {"GPU MODEL", {.rank = 6, .wide = true}}});
  for (const api::Image& image : images) {
    const double pause_ms = image.pause_ms.value_or(0);
    table.add({image.id, image.job_name.value_or("-"), layout.ages ? short_age(image.age_ms) : "-",
               short_bytes(image.state_bytes), short_bytes(image.new_bytes),
               pause_ms > 0 ? short_span(pause_ms) : "-", image.tier, state_of_image(image), image.created,
               image.gpu_model.value_or("-")});
  }
  return table.text(layout);
}

std::string view_policy(const api::Policy& policy, const Layout& layout) {
  const api::Breaker& breaker = policy.breaker;
  std::string out = "automatic moves: ";
  if (breaker.open)
    out += "STOPPED since " + breaker.since.value_or("-") + ": " + breaker.reason.value_or("-") +
           " (`gpumigrate policy reset-breaker`)";
  else
    out += "on, " + std::to_string(breaker.recent) + " of at most " + std::to_string(breaker.limit) +
           " within " + short_span(breaker.window_ms);
  out = paragraph(out, layout);
  for (const std::string& node : policy.paused)
    out += paragraph("paused: " + node + " (`gpumigrate policy resume " + node + "`)", layout);
  return out;
}

std::string view_health(const api::Health& health, const Layout& layout) {
  return view_policy(health.policy, layout) + "\n" + view_evacuations(health.evacuations, layout) + "\n" +
         view_findings(health.findings, layout);
}

std::string view_rebalance(const api::RebalancePlan& plan, const Layout& layout) {
  std::vector<api::RebalanceMove> moves;
  moves.reserve(plan.moves.size());
  for (const api::PlannedMove& move : plan.moves) moves.push_back({.planned = move, .state = "planned"});
  return view_rebalance_moves("dry run", moves, plan.effect, layout);
}

std::string view_rebalance(const api::Rebalance& run, const Layout& layout) {
  return view_rebalance_moves("rebalance " + run.state, run.moves, run.effect, layout);
}

std::string view_recovery(const api::Recovery& recovery, const Layout& layout) {
  Table table(
      {"FOUND", {"NODE", {.rank = 1, .min_width = 8}}, {"JOB", {.rank = 2}}, {"WHAT", {.min_width = 20}}});
  for (const api::RecoveryFact& one : recovery.found)
    table.add({one.kind, one.node, one.job.value_or("-"), one.text});
  std::string out =
      table.empty()
          ? paragraph("Nodes have reported nothing that is missing in the coordinator's store.", layout)
          : table.text(layout);
  out += view_undecided(recovery.undecided, layout);
  out += view_resting(recovery.images_of_unknown_jobs, layout);
  const std::string away = joined(recovery.nodes_away, ", ");
  if (!away.empty())
    out += paragraph("No report yet from: " + away + ". It is unknown which jobs run there.", layout);
  if (recovery.open_until)
    out += paragraph(
        "Jobs that nodes report are accepted until " + clock_text(*recovery.open_until, layout) +
            ". Until `gpumigrate cluster confirm JOB`, an accepted job moves only at a user's request.",
        layout);
  if (!recovery.found.empty())
    out += paragraph(
        "Cordons, drains, protection schedules and the output of jobs before their last move are lost.",
        layout);
  return out;
}

}  // namespace ckpt::cli
