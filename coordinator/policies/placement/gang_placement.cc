// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/placement/gang_placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>

namespace ckpt::coordinator {
namespace {

constexpr double kNvlink = 2;          // the nearness of two GPUs with NVLink, which exceeds that of GPUs on
                                       // any common board
constexpr double kFarthestBoard = 50;  // the limit of NVML's levels: 40 is one NUMA node, 50 is beyond it
constexpr double kOneNumaNode = 1 - 40 / kFarthestBoard;
constexpr double kOfScore = 0.01;  // the weight of the score, which decides only among equals

double nearness(const GpuView& a, const GpuView& b) {
  const auto peer = std::find_if(a.peers.begin(), a.peers.end(),
                                 [&b](const PeerView& known) { return known.gpu == b.place.gpu; });
  if (peer == a.peers.end()) return a.numa_node >= 0 && a.numa_node == b.numa_node ? kOneNumaNode : 0;
  if (peer->nvlinks > 0) return kNvlink + peer->nvlinks * kOfScore;
  return 1 - std::min<double>(peer->common_ancestor, kFarthestBoard) / kFarthestBoard;
}

struct Member {
  const Candidate* candidate = nullptr;
  const GpuView* view = nullptr;
};

struct Group {
  std::vector<Member> members;
  double worth = 0;
};

// The neighbors of candidates: the ranks that stay.
class Neighbours {
 public:
  Neighbours(const std::vector<Place>& places, const std::vector<GpuView>& gpus) {
    for (const GpuView& gpu : gpus) {
      if (std::find(places.begin(), places.end(), gpu.place) == places.end()) continue;
      views_.push_back(&gpu);
    }
  }
  // The number of staying ranks on the same node, in the same NVLink domain, and in the same rack.
  using Closeness = std::tuple<std::size_t, std::size_t, std::size_t>;
  [[nodiscard]] Closeness closeness(const GpuView& gpu) const {
    const auto count = [this](auto test) {
      return static_cast<std::size_t>(
          std::count_if(views_.begin(), views_.end(), [&test](const GpuView* view) { return test(*view); }));
    };
    return {count([&gpu](const GpuView& other) { return other.place.node == gpu.place.node; }),
            count([&gpu](const GpuView& other) { return !gpu.fabric.empty() && other.fabric == gpu.fabric; }),
            count([&gpu](const GpuView& other) { return !gpu.rack.empty() && other.rack == gpu.rack; })};
  }
  // Returns the nearness to the staying ranks on the GPU's node.
  [[nodiscard]] double nearness_of(const GpuView& gpu) const {
    double sum = 0;
    for (const GpuView* view : views_)
      if (view->place.node == gpu.place.node) sum += nearness(gpu, *view);
    return sum;
  }

 private:
  std::vector<const GpuView*> views_;
};

// Grows a group from the member `first`. Each step adds the member that increases the group's worth the most.
Group grow(const std::vector<Member>& node, std::size_t first, std::size_t ranks,
           const Neighbours& neighbours) {
  Group group;
  std::vector<Member> left = node;
  const auto worth_alone = [&neighbours](const Member& member) {
    return member.candidate->score * kOfScore + neighbours.nearness_of(*member.view);
  };
  const auto choose = [&](std::size_t at, double worth) {
    group.worth += worth;
    group.members.push_back(left[at]);
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(at));
  };
  choose(first, worth_alone(node[first]));
  while (group.members.size() < ranks) {
    std::size_t best = 0;
    double best_worth = -1;
    for (std::size_t i = 0; i < left.size(); ++i) {
      double worth = worth_alone(left[i]);
      for (const Member& member : group.members) worth += nearness(*left[i].view, *member.view);
      if (worth <= best_worth) continue;
      best = i;
      best_worth = worth;
    }
    choose(best, best_worth);
  }
  return group;
}

// The suitable GPUs of each node.
using Nodes = std::map<std::string, std::vector<Member>>;

// The number of ranks that a node takes.
struct Share {
  std::string node;
  std::size_t ranks = 0;
};

Nodes members_of(const std::vector<Candidate>& candidates, const std::vector<GpuView>& gpus) {
  Nodes nodes;
  for (const Candidate& candidate : candidates) {
    if (!candidate.suitable) continue;
    const auto view = std::find_if(gpus.begin(), gpus.end(),
                                   [&candidate](const GpuView& gpu) { return gpu.place == candidate.place; });
    if (view != gpus.end()) nodes[candidate.place.node].push_back({&candidate, &*view});
  }
  return nodes;
}

Group best_group(const std::vector<Member>& node, std::size_t ranks, const Neighbours& neighbours) {
  Group best;
  for (std::size_t first = 0; node.size() >= ranks && first < node.size(); ++first) {
    Group group = grow(node, first, ranks, neighbours);
    if (best.members.empty() || group.worth > best.worth) best = std::move(group);
  }
  return best;
}

// Returns the shares on one node. The node nearest to the staying ranks is preferred, then the node with the
// best group. An empty list means that no node has enough GPUs.
std::vector<Share> on_one_node(const Nodes& nodes, std::size_t ranks, const Neighbours& neighbours) {
  std::vector<Share> shares;
  std::pair<Neighbours::Closeness, double> best;
  for (const auto& [name, members] : nodes) {
    const Group group = best_group(members, ranks, neighbours);
    if (group.members.empty()) continue;
    const std::pair found(neighbours.closeness(*members.front().view), group.worth);
    if (!shares.empty() && found <= best) continue;
    shares = {{name, ranks}};
    best = found;
  }
  return shares;
}

std::vector<Share> spread_evenly(const std::vector<std::string>& nodes, std::size_t ranks) {
  std::vector<Share> shares;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const std::size_t share = ranks / nodes.size() + (i < ranks % nodes.size() ? 1 : 0);
    const auto known = std::find_if(shares.begin(), shares.end(),
                                    [&](const Share& other) { return other.node == nodes[i]; });
    if (known == shares.end())
      shares.push_back({nodes[i], share});
    else
      known->ranks += share;
  }
  return shares;
}

// Returns the shares on few nodes. The largest nodes are taken first. The remaining ranks go to the smallest
// node that takes all of them. An empty list means that the nodes have too few GPUs.
std::vector<Share> on_fewest(std::vector<Share> nodes, std::size_t ranks) {
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const Share& a, const Share& b) { return a.ranks > b.ranks; });
  std::vector<Share> shares;
  while (ranks > 0) {
    if (nodes.empty()) return {};
    auto found = std::find_if(nodes.rbegin(), nodes.rend(),
                              [ranks](const Share& node) { return node.ranks >= ranks; });
    const auto at = found == nodes.rend() ? nodes.begin() : std::prev(found.base());
    shares.push_back({at->node, std::min(at->ranks, ranks)});
    ranks -= shares.back().ranks;
    nodes.erase(at);
  }
  std::sort(shares.begin(), shares.end(), [](const Share& a, const Share& b) { return a.node < b.node; });
  return shares;
}

std::vector<Share> on_few_nodes(const Nodes& nodes, std::size_t ranks, const Neighbours& neighbours) {
  if (auto one = on_one_node(nodes, ranks, neighbours); !one.empty()) return one;
  struct Rack {
    std::vector<Share> nodes;
    std::size_t neighbours = 0;
  };
  std::vector<Share> all;
  std::map<std::string, Rack> racks;
  for (const auto& [name, members] : nodes) {
    const GpuView& view = *members.front().view;
    all.push_back({name, members.size()});
    if (view.rack.empty()) continue;
    racks[view.rack].nodes.push_back(all.back());
    racks[view.rack].neighbours = std::get<2>(neighbours.closeness(view));
  }
  std::vector<Share> best;
  std::size_t best_neighbours = 0;
  for (const auto& [name, rack] : racks) {
    auto shares = on_fewest(rack.nodes, ranks);
    const bool is_better = best.empty() || rack.neighbours > best_neighbours ||
                           (rack.neighbours == best_neighbours && shares.size() < best.size());
    if (shares.empty() || !is_better) continue;
    best = std::move(shares);
    best_neighbours = rack.neighbours;
  }
  return best.empty() ? on_fewest(std::move(all), ranks) : best;
}

std::string others_text(const std::vector<Candidate>& candidates) {
  std::vector<Candidate> unsuitable;
  std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(unsuitable),
               [](const Candidate& candidate) { return !candidate.suitable; });
  if (unsuitable.empty()) return {};
  return "; the others: " + causes_text(unsuitable, [](const Place&) { return std::string(); });
}

std::string why_not(const Nodes& nodes, const std::vector<Candidate>& candidates, const GangShape& shape) {
  std::string counts;
  for (const auto& [node, members] : nodes)
    counts += fmt::format("{}{} has {}", counts.empty() ? "" : ", ", node, members.size());
  std::string reason = shape.one_node
                           ? fmt::format("No node has {} GPUs that can each hold a rank", shape.ranks)
                           : fmt::format("Fewer than {} GPUs can each hold a rank", shape.ranks);
  if (!counts.empty()) reason += ": " + counts;
  return reason + others_text(candidates);
}

std::size_t room_of(const Nodes& nodes, const std::string& node) {
  const auto at = nodes.find(node);
  return at == nodes.end() ? 0 : at->second.size();
}

void place_on(const std::vector<Member>& node, std::size_t ranks, const Neighbours& neighbours,
              std::vector<Place>& places) {
  const auto first = static_cast<std::ptrdiff_t>(places.size());
  const Group group = best_group(node, ranks, neighbours);
  for (const Member& member : group.members) places.push_back(member.candidate->place);
  std::sort(places.begin() + first, places.end(),
            [](const Place& a, const Place& b) { return a.gpu < b.gpu; });
}

}  // namespace

GangPlan place_gang(std::vector<Candidate> candidates, const std::vector<GpuView>& gpus,
                    const GangShape& shape) {
  const Nodes nodes = members_of(candidates, gpus);
  const Neighbours neighbours(shape.beside, gpus);
  GangPlan plan;
  const std::vector<Share> shares = shape.one_node        ? on_one_node(nodes, shape.ranks, neighbours)
                                    : shape.nodes.empty() ? on_few_nodes(nodes, shape.ranks, neighbours)
                                                          : spread_evenly(shape.nodes, shape.ranks);
  if (shares.empty()) plan.reason = why_not(nodes, candidates, shape);
  for (const Share& share : shares) {
    if (const std::size_t room = room_of(nodes, share.node); room < share.ranks)
      plan.reason += fmt::format("{}{} must hold {} ranks, but only {} of its GPUs can hold one",
                                 plan.reason.empty() ? "" : "; ", share.node, share.ranks, room);
  }
  if (plan.reason.empty()) {
    for (const Share& share : shares) place_on(nodes.at(share.node), share.ranks, neighbours, plan.places);
  } else if (!shares.empty()) {
    plan.reason += others_text(candidates);
  }
  plan.candidates = std::move(candidates);
  return plan;
}

std::string shares_text(const std::vector<Place>& places) {
  std::string text;
  for (auto at = places.begin(); at != places.end();) {
    const auto end =
        std::find_if(at, places.end(), [&at](const Place& place) { return place.node != at->node; });
    const auto ranks = end - at;
    text += fmt::format("{}{} {} rank{}", text.empty() ? "" : ", ", at->node, ranks, ranks == 1 ? "" : "s");
    at = end;
  }
  return text;
}

}  // namespace ckpt::coordinator
