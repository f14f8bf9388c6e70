// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/plan_views.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "coordinator/api/migration_views.h"
#include "coordinator/api/optional_text.h"

namespace ckpt::coordinator {
namespace {

std::vector<std::string> texts_of(const std::vector<Place>& places) {
  std::vector<std::string> texts;
  texts.reserve(places.size());
  for (const Place& place : places) texts.push_back(to_text(place));
  return texts;
}

std::vector<api::Candidate> candidates_view(const std::vector<Candidate>& candidates) {
  std::vector<api::Candidate> view;
  view.reserve(candidates.size());
  for (const Candidate& candidate : candidates) {
    api::Candidate& shown = view.emplace_back();
    shown.node = candidate.place.node;
    shown.gpu = candidate.place.gpu;
    shown.suitable = candidate.suitable;
    if (candidate.suitable) shown.score = candidate.score;
    if (!candidate.suitable) shown.cause = candidate.cause;
    shown.reasons = candidate.reasons;
  }
  return view;
}

api::Movability movability_view(const std::string& obstacles) {
  return {.possible = obstacles.empty(), .reason = text_if_any(obstacles)};
}

}  // namespace

std::optional<double> pause_ms_if_any(const std::optional<ExpectedPause>& pause) {
  return pause ? std::optional(pause->ms) : std::nullopt;
}

std::optional<std::string> pause_from_if_any(const std::optional<ExpectedPause>& pause) {
  if (!pause) return std::nullopt;
  return pause->is_estimate ? "estimate" : "last_move";
}

std::vector<api::Displacement> displaced_view(const std::vector<Displacement>& displaced) {
  std::vector<api::Displacement> view;
  view.reserve(displaced.size());
  for (const Displacement& going : displaced)
    view.push_back({.job = job_text(going.job),
                    .name = going.name,
                    .priority = going.priority,
                    .from = to_text(going.from),
                    .to = going.to ? std::optional(to_text(*going.to)) : std::nullopt});
  return view;
}

api::RunPlan run_plan_view(const SubmitRequest& request, const RunPlan& plan) {
  api::RunPlan view;
  view.name = text_if_any(request.spec.name);
  view.places = texts_of(plan.placing.places);
  view.to = text_if_any(fmt::format("{}", fmt::join(view.places, ", ")));
  view.gpu_memory_bytes = request.spec.gpu_memory_bytes;
  view.displaced = displaced_view(plan.displaced);
  view.possible = !plan.placing.places.empty();
  view.reason = text_if_any(plan.placing.reason);
  view.candidates = candidates_view(plan.placing.candidates);
  return view;
}

api::MovePlan move_plan_view(const WholeJob& job, const JobMovePlan& plan, wire::MigrateOptions options,
                             const std::optional<ExpectedPause>& pause) {
  options.communicators = plan.communicators;
  options.connections = plan.connections;
  api::MovePlan view;
  view.job = job_text(job.id);
  view.job_name = job.name;
  view.ranks = plan.moved;
  view.size = job.size;
  view.strategy = record::name_of(options.strategy);
  std::vector<std::string> from;
  for (const Job* rank : job.ranks) {
    if (std::ranges::find(plan.moved, rank->rank_number()) == plan.moved.end()) continue;
    from.push_back(to_text(rank->place()));
    view.state_bytes += rank->state_bytes();
    // The driver saves an adopted job's memory during the pause. Therefore nothing can be copied before the
    // pause.
    if (rank->spec.mode == MigrationMode::kAdopted)
      view.strategy = record::name_of(wire::MigrateStrategy::kStopCopy);
  }
  view.from = fmt::format("{}", fmt::join(from, ","));
  view.to = text_if_any(fmt::format("{}", fmt::join(texts_of(plan.places), ",")));
  view.options = options_view(options);
  view.expected_pause_ms = pause_ms_if_any(pause);
  view.expected_pause_from = pause_from_if_any(pause);
  view.possible = plan.is_possible();
  view.reason = text_if_any(plan.reason);
  view.warnings = plan.warnings;
  view.candidates = candidates_view(plan.candidates);
  return view;
}

api::Obstacles obstacles_view(const Job& job, const MoveObstacles& found) {
  api::Obstacles view;
  view.job = job_text(job.id);
  view.name = job.spec.name;
  view.at = to_text(job.place());
  view.within_node = movability_view(found.within_node);
  view.between_nodes.movability = movability_view(found.between_nodes);
  for (const TargetAnswer& target : found.targets)
    view.between_nodes.targets.push_back(
        {.movability = movability_view(target.acceptance ? "" : target.acceptance.error().to_string()),
         .node = target.place.node});
  return view;
}

}  // namespace ckpt::coordinator
