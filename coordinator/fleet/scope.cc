// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/scope.h"

#include <algorithm>

#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {

Result<void> check_known(const Scope& scope, const NodeTable& nodes) {
  const Node* node = nodes.find(scope.node);
  if (node == nullptr) return Error(ErrorCode::kNotFound, "There is no node \"" + scope.node + "\"");
  if (!scope.gpu || node->gpus.empty()) return ok();
  const bool found = std::any_of(node->gpus.begin(), node->gpus.end(),
                                 [&](const wire::GpuInfo& gpu) { return gpu.index == *scope.gpu; });
  if (found) return ok();
  return Error(ErrorCode::kNotFound, "Node " + scope.node + " has no GPU " + std::to_string(*scope.gpu));
}

}  // namespace ckpt::coordinator
