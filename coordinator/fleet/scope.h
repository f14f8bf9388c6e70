// SPDX-License-Identifier: Apache-2.0
// The check that the node or GPU named by an operator exists.
#pragma once

#include "coordinator/fleet/nodes.h"
#include "coordinator/state/scope.h"

namespace ckpt::coordinator {

// Checks that the place is known. Returns kNotFound for a node that was never seen, or for a GPU that the
// node does not have. While a node is disconnected its GPUs are not known, and every GPU is accepted.
Result<void> check_known(const Scope& scope, const NodeTable& nodes);

}  // namespace ckpt::coordinator
