// SPDX-License-Identifier: Apache-2.0
// Values of records for the API, which are null where there is nothing to show. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "coordinator/api/api_json.h"

namespace ckpt::coordinator {

[[nodiscard]] inline std::optional<std::string> text_if_any(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text);
}
// The time of Unix milliseconds; 0: none.
[[nodiscard]] inline std::optional<std::string> time_if_any(std::int64_t unix_ms) {
  return unix_ms == 0 ? std::nullopt : std::optional(time_text(unix_ms));
}

}  // namespace ckpt::coordinator
