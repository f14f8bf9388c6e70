// SPDX-License-Identifier: Apache-2.0
// `gpumigrate doctor --job JOB`: what stands in the way of moving a running job, all at once, as its node finds it now.
// Threads: one. Errors: the command prints them and returns an exit status.
#pragma once

#include <string>

#include "tools/gpumigrate/client/context.h"

namespace ckpt::cli {

// What `GET /v1/jobs/JOB/obstacles` answered, for a person: a line for each way, and below it one for each obstacle.
std::string view_obstacles(const Json& answer, const Layout& layout);
int doctor_of_job(Context& context, const std::string& job);

}  // namespace ckpt::cli
