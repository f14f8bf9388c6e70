// SPDX-License-Identifier: Apache-2.0
#include "coordinator/image_operation.h"

namespace ckpt::coordinator {
namespace {

OperationStep next_of_taking(const OperationView& view) {
  if (!view.source_connected) return OperationStep::kWait;
  if (view.instance_alive) return OperationStep::kTakeSnapshot;
  if (!view.vault_known) return OperationStep::kAskVault;
  return view.image_newer ? OperationStep::kEnded : OperationStep::kAbandon;
}

OperationStep next_of_ending(const ImageOperation& operation, const OperationView& view) {
  if (view.instance_alive) return OperationStep::kEnd;
  return view.source_connected || operation.gone ? OperationStep::kEnded : OperationStep::kWait;
}

OperationStep next_of_starting(const OperationView& view) {
  if (!view.target_connected) return OperationStep::kWait;
  return view.target_runs ? OperationStep::kRuns : OperationStep::kStart;
}

}  // namespace

std::string_view to_string(OperationStep step) noexcept {
  switch (step) {
    case OperationStep::kWait:
      return "wait";
    case OperationStep::kTakeSnapshot:
      return "take-snapshot";
    case OperationStep::kAskVault:
      return "ask-vault";
    case OperationStep::kAbandon:
      return "abandon";
    case OperationStep::kEnd:
      return "end";
    case OperationStep::kEnded:
      return "ended";
    case OperationStep::kStart:
      return "start";
    case OperationStep::kRuns:
      return "runs";
  }
  return "unknown";
}

OperationStep next_step(const ImageOperation& operation, const OperationView& view) {
  switch (operation.stage) {
    case OperationStage::kTaking:
      return next_of_taking(view);
    case OperationStage::kEnding:
      return next_of_ending(operation, view);
    case OperationStage::kStarting:
      return next_of_starting(view);
  }
  return OperationStep::kWait;
}

}  // namespace ckpt::coordinator
