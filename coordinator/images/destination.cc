// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/destination.h"

#include "coordinator/requests/fields.h"

namespace ckpt::coordinator {

Result<Destination> destination_of(const std::string& to, const NodeTable& nodes) {
  Destination destination;
  if (to.empty()) return destination;
  if (means_folder(to)) {
    destination.folder = to;
    while (destination.folder.size() > 1 && destination.folder.back() == '/') destination.folder.pop_back();
    return destination;
  }
  if (nodes.find(to) == nullptr)
    return Error(ErrorCode::kNotFound, "There is no node \"" + to + "\"; a folder begins with '/'");
  destination.node = to;
  return destination;
}

Destination kept_at(const Protection& protection) {
  Destination to;
  to.folder = protection.folder;
  to.node = protection.node;
  return to;
}

std::string checkpoint_store_node(const Job& job, const Destination& to) {
  return to.folder.empty() && !to.node.empty() ? to.node : job.node();
}

}  // namespace ckpt::coordinator
