// SPDX-License-Identifier: Apache-2.0
#include "coordinator/placement/gang_placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

namespace ckpt::coordinator {
namespace {

constexpr double kNvlink = 2;  // more than any board
constexpr double kFarthestBoard = 50;
constexpr double kOfScore = 0.01;  // decides among equals only

double nearness(const GpuView& a, const GpuView& b) {
  const auto peer = std::find_if(a.peers.begin(), a.peers.end(),
                                 [&b](const PeerView& known) { return known.gpu == b.place.gpu; });
  if (peer == a.peers.end()) return 0;
  if (peer->nvlinks > 0) return kNvlink + peer->nvlinks * kOfScore;
  return 1 - std::min<double>(peer->common_ancestor, kFarthestBoard) / kFarthestBoard;
}

// The suitable GPUs of one node.
struct Member {
  const Candidate* candidate = nullptr;
  const GpuView* view = nullptr;
};

struct Group {
  std::vector<Member> members;
  double worth = 0;
};

// Grown from one of them by whichever adds the most.
Group grow(const std::vector<Member>& node, std::size_t first, std::size_t ranks) {
  Group group;
  std::vector<Member> left = node;
  const auto take = [&](std::size_t at, double worth) {
    group.worth += worth;
    group.members.push_back(left[at]);
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(at));
  };
  take(first, node[first].candidate->score * kOfScore);
  while (group.members.size() < ranks) {
    std::size_t best = 0;
    double best_worth = -1;
    for (std::size_t i = 0; i < left.size(); ++i) {
      double worth = left[i].candidate->score * kOfScore;
      for (const Member& member : group.members) worth += nearness(*left[i].view, *member.view);
      if (worth <= best_worth) continue;
      best = i;
      best_worth = worth;
    }
    take(best, best_worth);
  }
  return group;
}

std::string why_no_node(const std::map<std::string, std::vector<Member>>& nodes,
                        const std::vector<Candidate>& candidates, std::size_t ranks) {
  std::string counts;
  for (const auto& [node, members] : nodes)
    counts += fmt::format("{}{} has {}", counts.empty() ? "" : ", ", node, members.size());
  std::string reason = fmt::format("No node has {} GPUs that can each take a rank", ranks);
  if (!counts.empty()) reason += ": " + counts;
  std::vector<Candidate> unsuitable;
  std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(unsuitable),
               [](const Candidate& candidate) { return !candidate.suitable; });
  if (unsuitable.empty()) return reason;
  return reason + "; of the others " + causes_text(unsuitable, [](const Place&) { return std::string(); });
}

}  // namespace

GangPlan place_gang(std::vector<Candidate> candidates, const std::vector<GpuView>& gpus, std::size_t ranks) {
  std::map<std::string, std::vector<Member>> nodes;
  for (const Candidate& candidate : candidates) {
    if (!candidate.suitable) continue;
    const auto view = std::find_if(gpus.begin(), gpus.end(),
                                   [&candidate](const GpuView& gpu) { return gpu.place == candidate.place; });
    if (view != gpus.end()) nodes[candidate.place.node].push_back({&candidate, &*view});
  }
  Group best;
  for (const auto& [name, members] : nodes) {
    for (std::size_t first = 0; members.size() >= ranks && first < members.size(); ++first) {
      Group group = grow(members, first, ranks);
      if (best.members.empty() || group.worth > best.worth) best = std::move(group);
    }
  }
  GangPlan plan;
  for (const Member& member : best.members) plan.places.push_back(member.candidate->place);
  std::sort(plan.places.begin(), plan.places.end(),
            [](const Place& a, const Place& b) { return a.gpu < b.gpu; });
  if (plan.places.empty()) plan.reason = why_no_node(nodes, candidates, ranks);
  plan.candidates = std::move(candidates);
  return plan;
}

}  // namespace ckpt::coordinator
