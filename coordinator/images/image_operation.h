// SPDX-License-Identifier: Apache-2.0
// The next step of an operation on a job's images, from its durable stage and from the state of the nodes.
// Nothing else is remembered. So a coordinator that was killed continues where it was. Pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "coordinator/state/image_records.h"

namespace ckpt::coordinator {

// The state of the nodes, as far as the operation needs it.
struct OperationView {
  bool source_connected = false;  // the node of the instance that there was
  bool instance_alive = false;    // an instance that must end lives, or may, at a node that is connected
  bool may_live_away = false;     // one that was given up may live at a node that is not
  bool vault_known = false;       // the vault was listed since the instance was seen to have ended
  bool image_newer = false;       // and has a version that is newer than the operation's image
  bool target_connected = false;
  bool target_runs = false;  // the next instance
  bool expired = false;      // its time is over, or that of the vault to answer
};

enum class OperationStep : std::uint8_t {
  kWait = 1,      // for a node
  kTakeSnapshot,  // order it (again)
  kCancel,        // have the snapshot given up: the job runs on
  kAskVault,      // the job has ended: with its image, or by itself
  kAbandon,       // it has ended by itself
  kEnd,           // order its end
  kEnded,         // it has ended: to the next stage
  kStart,         // order the start (again)
  kRuns,          // done
  kGiveUp,        // it does not start: the job is to be stopped
};
[[nodiscard]] std::string_view to_string(OperationStep step) noexcept;

[[nodiscard]] OperationStep next_step(const ImageOperation& operation, const OperationView& view);

}  // namespace ckpt::coordinator
