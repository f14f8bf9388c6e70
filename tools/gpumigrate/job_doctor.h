// SPDX-License-Identifier: Apache-2.0
// `gpumigrate doctor --job JOB`: what stands in the way of moving a running job, all at once, as its node finds it now.
// Threads: one. Errors: the command prints them and returns an exit status.
#pragma once

#include <string>

#include "libckpt/api/plan.h"
#include "tools/gpumigrate/client/context.h"

namespace ckpt::cli {

// A line for each kind of move, and below these one for each obstacle.
std::string view_obstacles(const api::Obstacles& found, const Layout& layout);
int doctor_of_job(Context& context, const std::string& job);

}  // namespace ckpt::cli
