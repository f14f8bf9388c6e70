// SPDX-License-Identifier: Apache-2.0
// The types for moves of ranks, under the names that a runner of their machines uses
// (libckpt/runner/protocol.h). Coordinator and agents have their own batch types.
#pragma once

#include "libckpt/protocol/gang/gang_types.h"

namespace ckpt::gang {

struct MachineTypes {
  using Action = gang::Action;
  using Record = gang::Record;
  using WriteRecord = gang::WriteRecord;
  using ArmTimer = gang::ArmTimer;
  using DisarmTimer = gang::DisarmTimer;
  using Timer = gang::Timer;
};

}  // namespace ckpt::gang
