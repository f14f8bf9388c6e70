// SPDX-License-Identifier: Apache-2.0
// Every key of coordinator.toml with its default and its description. Files are read by this list (config.h),
// and docs/site/settings.md is generated from it.
// Threads: pure functions. Ownership: the list points into `config`. Errors: none.
#pragma once

#include <string>
#include <vector>

#include "coordinator/settings/config.h"
#include "libckpt/net/settings/setting.h"

namespace ckpt::coordinator {

[[nodiscard]] std::vector<settings::Setting> settings_of(Config& config);
// Returns the rows of docs/site/settings.md.
[[nodiscard]] std::string settings_page();

}  // namespace ckpt::coordinator
