// SPDX-License-Identifier: Apache-2.0
// Checks of each machine's step against the rules (SW-n, docs/design.md), in every build. Each check compares
// the state before, the state after and the actions, which have not been performed. No message can make a
// correct machine fail a check.
// Threads: pure functions. Errors: a step that breaks a rule aborts the process (libckpt/base/check.h).
#pragma once

#include "libckpt/protocol/handover/coordinator_machine.h"
#include "libckpt/protocol/handover/source_machine.h"
#include "libckpt/protocol/handover/target_machine.h"

namespace ckpt::migration {

void check_step(const SourceState& before, const Step<SourceState>& made, Nanos now);
void check_step(const TargetState& before, const Step<TargetState>& made, Nanos now);
void check_step(const CoordinatorState& before, const Step<CoordinatorState>& made, Nanos now);

}  // namespace ckpt::migration
