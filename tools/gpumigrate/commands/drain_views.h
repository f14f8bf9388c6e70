// SPDX-License-Identifier: Apache-2.0
// How cordons and drains look to people. Pure functions of the coordinator's JSON (docs/api.md).
#pragma once

#include <string>

#include "tools/gpumigrate/client/coordinator_client.h"
#include "tools/gpumigrate/client/screen.h"

namespace ckpt::cli {

std::string view_cordon(const Json& cordon);                        // one line
std::string view_uncordon(const Json& answer);                      // what was removed, and what is left
std::string view_drains(const Json& drains, const Layout& layout);  // `drains`
// Its jobs, and how it ended or stands. Where no GPU takes a job, `each` shows the reason of each GPU.
std::string view_drain(const Json& drain, bool each, const Layout& layout);
std::string view_drain_plan(const Json& plan, bool each, const Layout& layout);  // `drain --dry-run`
std::string view_drain_job(const Json& job);                                     // one line

}  // namespace ckpt::cli
