// SPDX-License-Identifier: Apache-2.0
// The destination of a snapshot. Pure except for reading the table of nodes.
// Threads: one. Errors: kNotFound for an unknown node.
#pragma once

#include <string>

#include "coordinator/fleet/nodes.h"

namespace ckpt::coordinator {

struct Destination {
  std::string folder;
  std::string node;  // the node whose own checkpoint store is used if `folder` is empty; empty: the node
                     // where the job runs
};

// Parses `to`, which is NODE or an absolute folder. An empty text means the job's own node.
[[nodiscard]] Result<Destination> destination_of(const std::string& to, const NodeTable& nodes);
[[nodiscard]] Destination kept_at(const Protection& protection);
// Returns the node that owns the checkpoint store of the destination. For a folder, or without a node, this
// is the job's own node.
[[nodiscard]] std::string checkpoint_store_node(const Job& job, const Destination& to);

}  // namespace ckpt::coordinator
