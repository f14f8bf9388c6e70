// SPDX-License-Identifier: Apache-2.0
// Where a snapshot goes. Pure but for the table of nodes.
// Threads: one. Errors: kNotFound for a node that there is not.
#pragma once

#include <string>

#include "coordinator/fleet/nodes.h"

namespace ckpt::coordinator {

struct Destination {
  std::string folder;
  std::string node;  // with an empty folder: in its own vault; empty: where the job runs
};

// NODE, or an absolute folder; empty: the job's own node.
[[nodiscard]] Result<Destination> destination_of(const std::string& to, const NodeTable& nodes);
[[nodiscard]] Destination kept_at(const Protection& protection);
// The node that owns the vault of the destination: the job's own for a folder, or without a node.
[[nodiscard]] std::string vault_node(const Job& job, const Destination& to);

}  // namespace ckpt::coordinator
