// SPDX-License-Identifier: Apache-2.0
#include "coordinator/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace ckpt::coordinator {
namespace {

// A job less on the GPU outweighs anything free memory can do, a job less on the node comes next: spread.
constexpr double kJobWeight = 1.0;
constexpr double kNodeJobWeight = 0.25;
constexpr double kModelWeight = 0.2;

std::vector<std::string> objections(const GpuView& gpu, const PlacementRequest& request) {
  std::vector<std::string> reasons;
  if (request.node && (gpu.place.node != *request.node || (request.gpu && gpu.place.gpu != *request.gpu)))
    reasons.emplace_back("not asked for");
  if (!gpu.connected) reasons.emplace_back("node is not connected");
  if (request.not_here && gpu.place == *request.not_here) reasons.emplace_back("the job is there already");
  if (!gpu.healthy) reasons.push_back("unhealthy: " + gpu.health_reason);
  if (request.same_model && gpu.model != request.preferred_model)
    reasons.push_back("model " + gpu.model + ", needed is " + request.preferred_model);
  const bool other_node = !request.not_here || gpu.place.node != request.not_here->node;
  if (request.host_process && other_node && !gpu.moves_processes)
    reasons.push_back("its node cannot take over host processes: " + gpu.process_reason);
  const std::uint64_t free = gpu.free_bytes - std::min(gpu.free_bytes, gpu.promised_bytes);
  const std::uint64_t needed = request.memory_bytes + request.margin_bytes;
  if (free < needed)
    reasons.push_back(fmt::format("{} free{}, needed are {}", bytes_text(free),
                                  gpu.promised_bytes > 0 ? " after what is promised to starting jobs" : "",
                                  bytes_text(needed)));
  return reasons;
}

double score_of(const GpuView& gpu, const PlacementRequest& request, std::vector<std::string>& reasons) {
  const double free_share =
      gpu.total_bytes == 0 ? 0 : static_cast<double>(gpu.free_bytes) / static_cast<double>(gpu.total_bytes);
  double score = free_share - kJobWeight * gpu.jobs - kNodeJobWeight * gpu.node_jobs;
  reasons.push_back(fmt::format("{} free of {}", bytes_text(gpu.free_bytes), bytes_text(gpu.total_bytes)));
  reasons.push_back(fmt::format("{} job(s) on the GPU, {} on the node", gpu.jobs, gpu.node_jobs));
  if (!request.preferred_model.empty() && gpu.model == request.preferred_model) {
    score += kModelWeight;
    reasons.emplace_back("same model");
  }
  return score;
}

}  // namespace

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

std::vector<Candidate> rank_candidates(const std::vector<GpuView>& gpus, const PlacementRequest& request) {
  std::vector<Candidate> candidates;
  for (const GpuView& gpu : gpus) {
    Candidate candidate;
    candidate.place = gpu.place;
    candidate.reasons = objections(gpu, request);
    candidate.suitable = candidate.reasons.empty();
    if (candidate.suitable) candidate.score = score_of(gpu, request, candidate.reasons);
    candidates.push_back(std::move(candidate));
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (a.suitable != b.suitable) return a.suitable;
    return a.score > b.score;
  });
  return candidates;
}

std::string why_none(const std::vector<Candidate>& candidates, const PlacementRequest& request) {
  std::string text;
  for (const Candidate& candidate : candidates) {
    const bool asked = !request.node || (candidate.place.node == *request.node &&
                                         (!request.gpu || candidate.place.gpu == *request.gpu));
    if (!asked) continue;
    if (!text.empty()) text += "; ";
    text += to_text(candidate.place) + ": " + fmt::format("{}", fmt::join(candidate.reasons, ", "));
  }
  return text.empty() ? "there is no GPU" : text;
}

}  // namespace ckpt::coordinator
