// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/placement/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

namespace ckpt::coordinator {
namespace {

// Checks whether the GPU would be suitable once its node is connected, its memory is free, and it has no
// recent finding.
bool may_do_later(GpuView gpu, const PlacementRequest& request) {
  gpu.connected = true;
  gpu.suspect.clear();
  gpu.free_bytes = gpu.total_bytes;
  gpu.promised_bytes = 0;
  return objections(gpu, request).empty();
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
    candidate.cause = cause_of(gpu, request);
    if (candidate.suitable) {
      for (ScoreTerm& term : score_terms(gpu, request, gpus)) {
        candidate.score += term.points;
        candidate.reasons.push_back(fmt::format("{} ({:+.2f})", term.reason, term.points));
      }
    } else {
      candidate.passing = may_do_later(gpu, request);
    }
    candidates.push_back(std::move(candidate));
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(b.suitable, b.score, a.place.node, a.place.gpu) <
           std::tie(a.suitable, a.score, b.place.node, b.place.gpu);
  });
  return candidates;
}

std::string why_none(const std::vector<Candidate>& candidates, const PlacementRequest& request) {
  constexpr std::size_t kListed = 2;
  std::vector<Candidate> asked;
  std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(asked), [&](const Candidate& one) {
    return !request.node ||
           (one.place.node == *request.node && (!request.gpu || one.place.gpu == *request.gpu));
  });
  if (asked.empty()) return "there is no GPU";
  if (asked.size() > kListed) return causes_text(asked, [](const Place&) { return std::string(); });
  return fmt::format("{}", fmt::join(obstacles_of(asked), "; "));
}

std::string causes_text(const std::vector<Candidate>& candidates,
                        const std::function<std::string(const Place&)>& other) {
  std::vector<std::pair<std::string, unsigned>> counts;
  for (const Candidate& candidate : candidates) {
    std::string cause = other(candidate.place);
    if (cause.empty()) cause = candidate.cause;
    const auto same =
        std::find_if(counts.begin(), counts.end(), [&](const auto& count) { return count.first == cause; });
    if (same == counts.end())
      counts.emplace_back(cause, 1);
    else
      ++same->second;
  }
  std::string text;
  for (const auto& [cause, count] : counts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, cause);
  return text.empty() ? "there is no GPU" : text;
}

std::vector<std::string> obstacles_of(const std::vector<Candidate>& candidates) {
  std::vector<std::string> obstacles;
  for (const Candidate& candidate : candidates)
    obstacles.push_back(fmt::format("{}: {}", to_text(candidate.place), fmt::join(candidate.reasons, ", ")));
  return obstacles;
}

}  // namespace ckpt::coordinator
