// SPDX-License-Identifier: Apache-2.0
// Whether the place that an operator named is there.
#pragma once

#include "coordinator/fleet/nodes.h"
#include "coordinator/state/scope.h"

namespace ckpt::coordinator {

// kNotFound for a node that was never seen and a GPU that it does not have. The GPUs of a node that is away
// are not known: any will do.
Result<void> check_known(const Scope& scope, const NodeTable& nodes);

}  // namespace ckpt::coordinator
