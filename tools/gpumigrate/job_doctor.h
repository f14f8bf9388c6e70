// SPDX-License-Identifier: Apache-2.0
// `gpumigrate doctor --job JOB` shows all obstacles that currently prevent a running job from moving, as
// reported by its node.
// Threads: one. Errors: the command prints errors and returns an exit status.
#pragma once

#include <string>

#include "libckpt/api/plan.h"
#include "tools/gpumigrate/client/context.h"

namespace ckpt::cli {

// Returns a line for each kind of move, then a line for each obstacle.
std::string view_obstacles(const api::Obstacles& found, const Layout& layout);
int doctor_of_job(Context& context, const std::string& job);

}  // namespace ckpt::cli
