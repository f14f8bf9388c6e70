// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::wire {

std::string_view to_string(JobPhase phase) noexcept {
  switch (phase) {
    case JobPhase::kInvalid:
      return "invalid";
    case JobPhase::kStarting:
      return "starting";
    case JobPhase::kRunning:
      return "running";
    case JobPhase::kStandby:
      return "standby";
    case JobPhase::kPaused:
      return "paused";
    case JobPhase::kExited:
      return "exited";
    case JobPhase::kMoved:
      return "moved";
  }
  return "unknown";
}

}  // namespace ckpt::wire
