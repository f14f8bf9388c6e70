// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/placement/move_placement.h"

#include <algorithm>

namespace ckpt::coordinator {
namespace {

bool has_suitable(const std::vector<Candidate>& candidates) {
  return !candidates.empty() && candidates.front().suitable;
}

// Counts the memory that the job will have released as free.
void release(const ReturningJob& job, std::vector<GpuView>& gpus) {
  for (GpuView& view : gpus) {
    if (view.place != job.held) continue;
    view.free_bytes = std::min(view.total_bytes, view.free_bytes + job.shown_bytes);
    view.promised_bytes -= std::min(view.promised_bytes, job.expected_bytes - job.shown_bytes);
    view.jobs -= std::min(view.jobs, 1U);
  }
}

std::string no_gpu_for(const std::string& name, const std::vector<Candidate>& candidates,
                       const PlacementRequest& request) {
  return "No GPU can hold " + name + ": " + why_none(candidates, request);
}

}  // namespace

void count_promised(const PromisedMemory& promised, std::vector<GpuView>& gpus) {
  for (GpuView& view : gpus) {
    for (const auto& [where, bytes] : promised) {
      view.node_jobs += where.node == view.place.node ? 1 : 0;
      if (where != view.place) continue;
      ++view.jobs;
      view.promised_bytes += bytes;
    }
  }
}

std::vector<Candidate> rank_targets(std::vector<GpuView> gpus, const PlacementRequest& request,
                                    const Place& from) {
  for (GpuView& view : gpus)
    if (view.place.node == from.node && view.node_jobs > 0) --view.node_jobs;
  return rank_candidates(gpus, request);
}

MigratePlan plan_move(std::vector<GpuView> gpus, const PlacementRequest& request, const MovingJob& job) {
  MigratePlan plan;
  plan.candidates = rank_targets(std::move(gpus), request, job.from);
  if (!job.obstacle.empty()) {
    plan.reason = "Job " + job.name + " cannot be moved: " + job.obstacle;
    plan.passing = !job.stays_put;
  } else if (has_suitable(plan.candidates)) {
    plan.to = plan.candidates.front().place;
  } else {
    plan.reason = no_gpu_for(job.name, plan.candidates, request);
    plan.no_gpu = true;
    plan.passing =
        job.nodes_may_return || std::any_of(plan.candidates.begin(), plan.candidates.end(),
                                            [](const Candidate& candidate) { return candidate.passing; });
  }
  return plan;
}

MigratePlan plan_return(std::vector<GpuView> gpus, const PlacementRequest& request, const ReturningJob& job) {
  release(job, gpus);
  MigratePlan plan;
  if (!job.image_node.empty() && !request.node) {
    PlacementRequest at_home = request;
    at_home.node = job.image_node;
    plan.candidates = rank_candidates(gpus, at_home);
  }
  if (!has_suitable(plan.candidates)) plan.candidates = rank_candidates(gpus, request);
  if (has_suitable(plan.candidates))
    plan.to = plan.candidates.front().place;
  else
    plan.reason = no_gpu_for(job.name, plan.candidates, request);
  return plan;
}

}  // namespace ckpt::coordinator
