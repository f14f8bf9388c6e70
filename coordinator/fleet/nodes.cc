// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/nodes.h"

namespace ckpt::coordinator {

Result<void> NodeTable::load() {
  CKPT_TRY(rows, store_.nodes());
  for (NodeRow& row : rows) {
    const std::string name = row.name;
    nodes_[name].row = std::move(row);
  }
  return ok();
}

const Node* NodeTable::find(const std::string& name) const {
  const auto at = nodes_.find(name);
  return at == nodes_.end() ? nullptr : &at->second;
}

Node* NodeTable::find(const std::string& name) {
  const auto at = nodes_.find(name);
  return at == nodes_.end() ? nullptr : &at->second;
}

bool NodeTable::connected(const std::string& name) const {
  const Node* node = find(name);
  return node != nullptr && node->connected();
}

}  // namespace ckpt::coordinator
