// SPDX-License-Identifier: Apache-2.0
#include "coordinator/lifecycle/job_view.h"

#include <algorithm>

namespace ckpt::coordinator::lifecycle {

const wire::JobInstance* own_instance(const Job& rank, const JobView& view) {
  const Segment& own = rank.segments.back();
  return view.instance(own.node, rank.id, own.incarnation);
}

Incarnation highest_known(const Job& rank, const JobView& view) {
  Incarnation highest = std::max(rank.incarnation, rank.fenced);
  for (const Segment& segment : rank.segments) highest = std::max(highest, segment.incarnation);
  for (const SeenInstance& seen : view.seen(rank.id)) highest = std::max(highest, seen.instance->incarnation);
  return highest;
}

bool has_instance(const JobView& view, const std::string& node, JobId job, Incarnation up_to) {
  const auto seen = view.seen(job);
  return std::any_of(seen.begin(), seen.end(), [&](const SeenInstance& one) {
    return one.node == node && one.instance->incarnation <= up_to && !is_over(one.instance->phase);
  });
}

bool has_instance_somewhere(const JobView& view, JobId job, Incarnation up_to) {
  const auto seen = view.seen(job);
  return std::any_of(seen.begin(), seen.end(), [&](const SeenInstance& one) {
    return one.connected && one.instance->incarnation <= up_to && !is_over(one.instance->phase);
  });
}

std::string silent_node(const Job& rank, const JobView& view) {
  const auto silent = std::find_if(rank.unfenced_nodes.begin(), rank.unfenced_nodes.end(),
                                   [&view](const std::string& node) { return !view.connected(node); });
  return silent == rank.unfenced_nodes.end() ? std::string() : *silent;
}

}  // namespace ckpt::coordinator::lifecycle
