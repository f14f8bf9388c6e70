// SPDX-License-Identifier: Apache-2.0
// Cordons and drains as text for display.
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "libckpt/api/drain.h"
#include "tools/gpumigrate/client/screen.h"

namespace ckpt::cli {

std::string view_cordon(const api::Cordon& cordon);        // shows a cordon in one line
std::string view_uncordon(const api::Uncordoned& answer);  // shows the removed cordons and the remaining ones
// Shows the list that the command `drains` prints.
std::string view_drains(const std::vector<api::Drain>& drains, const Layout& layout);
// Shows the jobs of a drain and the drain's result or state. `each` also shows the reason of each GPU that
// cannot take a job.
std::string view_drain(const api::Drain& drain, bool each, const Layout& layout);
std::string view_drain_job(const api::DrainJob& job);  // shows a job of a drain in one line
// Shows the plan of `drain --dry-run`.
std::string view_drain_plan(const api::DrainPlan& plan, bool each, const Layout& layout);

}  // namespace ckpt::cli
