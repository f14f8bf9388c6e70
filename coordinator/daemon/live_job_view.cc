// SPDX-License-Identifier: Apache-2.0
#include "coordinator/daemon/live_job_view.h"

namespace ckpt::coordinator {

const wire::JobInstance* LiveJobView::instance(const std::string& node, JobId job,
                                               Incarnation incarnation) const {
  const Node* known = nodes_.find(node);
  return known == nullptr ? nullptr : known->find(job, incarnation);
}

std::vector<lifecycle::SeenInstance> LiveJobView::seen(JobId job) const {
  std::vector<lifecycle::SeenInstance> found;
  for (const auto& [name, node] : nodes_.all()) {
    for (const wire::JobInstance& instance : node.instances)
      if (instance.job == job) found.push_back({name, node.connected(), &instance});
  }
  return found;
}

std::optional<Image> LiveJobView::image(std::string_view name) const {
  const auto named = parse_image_id(name);
  if (!named) return std::nullopt;
  const auto listed = catalog_.find(*named);
  return listed ? std::optional(listed->image) : std::nullopt;
}

}  // namespace ckpt::coordinator
