// SPDX-License-Identifier: Apache-2.0
#include "coordinator/lifecycle/order_rules.h"

#include <algorithm>
#include <map>
#include <set>

namespace ckpt::coordinator::lifecycle {
namespace {

// Returns the node of the migration's side that runs while the other side is disconnected. An empty string
// means that no node may receive an end order yet.
std::string alone_on(const Migration& open, const JobView& view) {
  const bool target_runs = open.runs_at == Side::kTarget;
  const bool source_runs = !target_runs && open.incarnation > open.base;
  if (target_runs && !view.connected(open.from.node)) return open.to.node;
  if (source_runs && !view.connected(open.to.node)) return open.from.node;
  return {};
}

// Returns the orders to end the rank's instances. An instance may run as a higher incarnation than the one it
// was started as.
std::vector<EndOrder> end_orders(const Job& rank, const JobView& view) {
  std::map<std::string, EndOrder> orders;
  for (const SeenInstance& seen : view.seen(rank.id)) {
    if (!seen.connected || is_over(seen.instance->phase)) continue;
    EndOrder& order = orders.try_emplace(seen.node, EndOrder{seen.node, rank.incarnation, rank.stop_grace_ms})
                          .first->second;
    order.up_to = std::max(order.up_to, seen.instance->incarnation);
  }
  std::vector<EndOrder> all;
  all.reserve(orders.size());
  for (auto& [node, order] : orders) all.push_back(std::move(order));
  return all;
}

}  // namespace

Incarnation given_up_to(const Job& rank, const JobView& view) {
  if (rank.operation && rank.operation->stage != OperationStage::kTaking) return rank.operation->fenced;
  return holds_gpu(rank.state) ? rank.fenced : highest_known(rank, view);
}

std::optional<EndOrder> fence_order(Incarnation fenced, const std::string& node,
                                    const wire::JobInstance& instance) {
  if (is_over(instance.phase) || instance.incarnation > fenced) return std::nullopt;
  return EndOrder{node, fenced, 0};
}

std::vector<ProofOrder> due_proofs(const Job& rank, const JobView& view) {
  std::vector<ProofOrder> proofs;
  std::set<std::string> nodes = rank.unfenced_nodes;
  if (rank.unfenced) nodes.insert(rank.node());
  for (const std::string& node : nodes) {
    const Incarnation up_to = given_up_to(rank, view);
    if (view.connected(node) && !has_instance(view, node, rank.id, up_to)) proofs.push_back({node, up_to});
  }
  return proofs;
}

std::vector<Order> due_orders(const Job& rank, const Migration* open, const JobView& view) {
  std::vector<Order> due;
  if (rank.operation) return due;
  if (open != nullptr) {
    if (!rank.stop_requested) return due;
    due.emplace_back(AbortOrder{open->id});
    const std::string alone = alone_on(*open, view);
    for (EndOrder& order : end_orders(rank, view))
      if (order.node == alone) due.emplace_back(std::move(order));
    return due;
  }
  if (rank.stop_requested) {
    for (EndOrder& order : end_orders(rank, view)) due.emplace_back(std::move(order));
  }
  for (ProofOrder& proof : due_proofs(rank, view)) due.emplace_back(std::move(proof));
  return due;
}

}  // namespace ckpt::coordinator::lifecycle
