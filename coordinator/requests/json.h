// SPDX-License-Identifier: Apache-2.0
// The JSON type of the HTTP API. Fields keep the order in which docs/api.md lists them.
#pragma once

#include <nlohmann/json.hpp>

namespace ckpt::coordinator {

using json = nlohmann::ordered_json;

}  // namespace ckpt::coordinator
