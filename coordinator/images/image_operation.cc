// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/image_operation.h"

namespace ckpt::coordinator {
namespace {

OperationStep next_of_taking(const ImageOperation& operation, const OperationView& view) {
  if (operation.stops && !(view.source_connected && view.instance_alive)) return OperationStep::kAbandon;
  if (!view.source_connected) return OperationStep::kWait;
  const bool given_up = !operation.cancelled.empty() || view.expired;
  if (view.instance_alive) return given_up ? OperationStep::kCancel : OperationStep::kTakeSnapshot;
  if (!view.checkpoint_store_known) return OperationStep::kAskCheckpointStore;
  return view.image_newer ? OperationStep::kEnded : OperationStep::kAbandon;
}

OperationStep next_of_ending(const ImageOperation& operation, const OperationView& view) {
  if (view.instance_alive) return OperationStep::kEnd;
  if (operation.stops) return OperationStep::kEnded;
  const bool settled = (view.source_connected || operation.instance_ended) && !view.may_live_away;
  return settled ? OperationStep::kEnded : OperationStep::kWait;
}

OperationStep next_of_starting(const ImageOperation& operation, const OperationView& view) {
  if (operation.stops) return OperationStep::kGiveUp;
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
    case OperationStep::kCancel:
      return "cancel";
    case OperationStep::kAskCheckpointStore:
      return "ask-checkpoint-store";
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
    case OperationStep::kGiveUp:
      return "give-up";
  }
  return "unknown";
}

OperationStep next_step(const ImageOperation& operation, const OperationView& view) {
  switch (operation.stage) {
    case OperationStage::kTaking:
      return next_of_taking(operation, view);
    case OperationStage::kEnding:
      return next_of_ending(operation, view);
    case OperationStage::kStarting:
      return next_of_starting(operation, view);
  }
  return OperationStep::kWait;
}

}  // namespace ckpt::coordinator
