// SPDX-License-Identifier: Apache-2.0
// Findings, evacuations and the policy as the API shows them (libckpt/api). Pure except for reading the
// tables.
#pragma once

#include "coordinator/health/evacuations.h"
#include "libckpt/api/health.h"

namespace ckpt::coordinator {

[[nodiscard]] api::Finding finding_view(const Finding& finding);
[[nodiscard]] api::Evacuation evacuation_view(const Evacuation& evacuation);
[[nodiscard]] api::Policy policy_view(const PolicyTable& policy, const Evacuations& evacuations);

}  // namespace ckpt::coordinator
