// SPDX-License-Identifier: Apache-2.0
// The texts of data/*.csv, compiled in. Threads: constants.
#pragma once

#include <string_view>

namespace ckpt::health {

[[nodiscard]] std::string_view xid_csv();
[[nodiscard]] std::string_view recovery_action_csv();
[[nodiscard]] std::string_view nvlink5_csv();

}  // namespace ckpt::health
