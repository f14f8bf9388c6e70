// SPDX-License-Identifier: Apache-2.0
#include "coordinator/placement/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

namespace ckpt::coordinator {
namespace {

// Whether it would do once its node is back and its memory free.
bool may_do_later(GpuView gpu, const PlacementRequest& request) {
  gpu.connected = true;
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
