// SPDX-License-Identifier: Apache-2.0
// The next step of an operation on a job's images. It follows from the operation's durable stage and the
// state of the nodes alone. So a coordinator that was killed continues at the same step. Pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "coordinator/state/image_records.h"

namespace ckpt::coordinator {

// The facts about nodes on which the operation's next step depends.
struct OperationView {
  bool source_connected = false;        // the node of the previous instance is connected
  bool instance_alive = false;          // an instance that must end runs, or may run, on a connected node
  bool may_live_away = false;           // an abandoned instance may run on a disconnected node
  bool checkpoint_store_known = false;  // the checkpoint store was listed after the instance's end was seen
  bool image_newer = false;             // the checkpoint store has a newer version than the operation's image
  bool target_connected = false;
  bool target_runs = false;  // the next instance runs, and its node has reported the image from which it was
                             // started
  bool expired = false;      // the operation's deadline, or the time limit of the checkpoint store's answer,
                             // has passed
};

enum class OperationStep : std::uint8_t {
  kWait = 1,            // wait for a node
  kTakeSnapshot,        // order the snapshot (again)
  kCancel,              // cancel the snapshot, after which the job continues to run
  kAskCheckpointStore,  // query the checkpoint store, because the job has ended with its image or on its own
  kAbandon,             // the job has ended on its own
  kEnd,                 // order the node to end the instance
  kEnded,               // the instance has ended: enter the next stage
  kStart,               // order the start (again)
  kRuns,                // the operation is complete
  kGiveUp,              // the job does not start and must be stopped
};
[[nodiscard]] std::string_view to_string(OperationStep step) noexcept;

[[nodiscard]] OperationStep next_step(const ImageOperation& operation, const OperationView& view);

}  // namespace ckpt::coordinator
