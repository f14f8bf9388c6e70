// SPDX-License-Identifier: Apache-2.0
// The handover's types under the names that a runner of its machines uses (libckpt/runner/protocol.h).
#pragma once

#include "libckpt/protocol/handover/agent_handovers.h"
#include "libckpt/protocol/handover/records.h"

namespace ckpt::migration {

struct MachineTypes {
  using Batch = migration::Batch;
  using Action = migration::Action;
  using Record = migration::Record;
  using WriteRecord = migration::WriteRecord;
  using ArmTimer = migration::ArmTimer;
  using DisarmTimer = migration::DisarmTimer;
  using Timer = migration::Timer;
};

}  // namespace ckpt::migration
