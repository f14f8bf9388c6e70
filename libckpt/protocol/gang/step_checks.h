// SPDX-License-Identifier: Apache-2.0
// Checks of each machine's step against the rules (GANG-n, docs/adr/0038, docs/design.md), in every build.
// Each check compares the state before, the state after and the actions, which have not been performed. No
// message can make a correct machine fail a check.
// Threads: pure functions. Errors: a step that breaks a rule aborts the process (libckpt/base/check.h).
#pragma once

#include "libckpt/protocol/gang/gang_bystander.h"
#include "libckpt/protocol/gang/gang_coordinator.h"
#include "libckpt/protocol/gang/gang_source.h"
#include "libckpt/protocol/gang/gang_target.h"

namespace ckpt::gang {

void check_step(const SourceState& before, const Step<SourceState, Action>& made);
void check_step(const TargetState& before, const Step<TargetState, Action>& made, Nanos now);
void check_step(const BystanderState& before, const Step<BystanderState, Action>& made);
void check_step(const CoordinatorState& before, const Step<CoordinatorState, Action>& made, Nanos now,
                bool is_fenced);

}  // namespace ckpt::gang
