// SPDX-License-Identifier: Apache-2.0
// The node table: the known nodes, their inventories, and their rows in the store. NodeSessions changes the
// table, and NodeCalls sends to the nodes.
// Threads: one io_context on one thread. Ownership: owns the nodes; pointers are valid until remove().
// Errors: those of the store.
#pragma once

#include <map>
#include <string>

#include "coordinator/fleet/node.h"

namespace ckpt::coordinator {

class NodeTable {
 public:
  explicit NodeTable(Store& store) : store_(store) {}

  // Loads the names of nodes that an earlier coordinator has seen.
  Result<void> load();

  [[nodiscard]] const Node* find(const std::string& name) const;
  [[nodiscard]] Node* find(const std::string& name);
  [[nodiscard]] const std::map<std::string, Node>& all() const { return nodes_; }
  [[nodiscard]] bool connected(const std::string& name) const;

  // Returns the node with that name. If there is none, adds an empty node to the table and returns it.
  Node& obtain(const std::string& name) { return nodes_[name]; }
  Result<void> store(const Node& node) { return store_.put(node.row); }
  // These functions remove a node in two steps, from the store and then from the table. Its connection is
  // closed between them.
  Result<void> remove_row(const std::string& name) { return store_.remove_node(name); }
  void remove(const std::string& name) { nodes_.erase(name); }

 private:
  Store& store_;
  std::map<std::string, Node> nodes_;
};

}  // namespace ckpt::coordinator
