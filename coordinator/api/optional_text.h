// SPDX-License-Identifier: Apache-2.0
// Times and texts as the API shows them. An absent value is null. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libckpt/base/clock.h"

namespace ckpt::coordinator {

// Formats Unix milliseconds as RFC 3339 in UTC.
[[nodiscard]] std::string time_text(std::int64_t unix_ms);
[[nodiscard]] inline std::optional<std::string> text_if_any(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text);
}
// Formats Unix milliseconds as text. Returns nullopt for 0, which means that no time is set.
[[nodiscard]] inline std::optional<std::string> time_if_any(std::int64_t unix_ms) {
  return unix_ms == 0 ? std::nullopt : std::optional(time_text(unix_ms));
}
// Converts nanoseconds to milliseconds. Returns nullopt for negative nanoseconds, which mean that the time is
// not known.
[[nodiscard]] inline std::optional<double> ms_if_known(std::int64_t nanos) {
  return nanos < 0 ? std::nullopt : std::optional(static_cast<double>(nanos) / kNanosPerMs);
}

}  // namespace ckpt::coordinator
