// SPDX-License-Identifier: Apache-2.0
// How cordons and drains look to people. Pure.
#pragma once

#include <string>
#include <vector>

#include "libckpt/api/drain.h"
#include "tools/gpumigrate/client/screen.h"

namespace ckpt::cli {

std::string view_cordon(const api::Cordon& cordon);        // one line
std::string view_uncordon(const api::Uncordoned& answer);  // what was removed, and what is left
std::string view_drains(const std::vector<api::Drain>& drains, const Layout& layout);  // `drains`
// Its jobs, and how it ended or stands. Where no GPU takes a job, `each` shows the reason of each GPU.
std::string view_drain(const api::Drain& drain, bool each, const Layout& layout);
std::string view_drain_job(const api::DrainJob& job);  // one line
// `drain --dry-run`.
std::string view_drain_plan(const api::DrainPlan& plan, bool each, const Layout& layout);

}  // namespace ckpt::cli
