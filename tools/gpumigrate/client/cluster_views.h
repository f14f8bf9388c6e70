// SPDX-License-Identifier: Apache-2.0
// Images, health, rebalances and recoveries as text that fits a layout. Pure functions of the coordinator's
// JSON (docs/api.md). A missing field is shown as "-".
#pragma once

#include <string>
#include <vector>

#include "libckpt/api/health.h"
#include "libckpt/api/image.h"
#include "libckpt/api/rebalance.h"
#include "libckpt/api/site.h"
#include "tools/gpumigrate/client/coordinator_client.h"
#include "tools/gpumigrate/client/screen.h"

namespace ckpt::cli {

std::string view_images(const std::vector<api::Image>& images, const Layout& layout);
// Shows whether automatic moves are on, and the paused nodes.
std::string view_policy(const api::Policy& policy, const Layout& layout);
// Shows the policy, the evacuations and the findings.
std::string view_health(const api::Health& health, const Layout& layout);
// These functions show the plan, and the progress of its execution.
std::string view_rebalance(const api::RebalancePlan& plan, const Layout& layout);
std::string view_rebalance(const api::Rebalance& run, const Layout& layout);
// Shows the result of `cluster recover`.
std::string view_recovery(const api::Recovery& recovery, const Layout& layout);

}  // namespace ckpt::cli
