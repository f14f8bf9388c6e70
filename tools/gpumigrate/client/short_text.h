// SPDX-License-Identifier: Apache-2.0
// Sizes, spans and ages as short texts for screens, and times of the API as numbers.
// Threads: pure functions.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/gpumigrate/client/coordinator_client.h"
#include "tools/gpumigrate/client/screen.h"

namespace ckpt::cli {

// Returns a text like "130 MiB", "1.5 GiB" or "312 B".
std::string short_bytes(double bytes);
// Returns a text like "40 MiB/s", or with a limit "12/40 MiB/s".
std::string short_rate(double bytes_per_second);
std::string short_rate_of(double bytes_per_second, double limit);
// Returns a text like "1.3 ms", "200 ms", "7.3 s" or "2m10s".
std::string short_span(double milliseconds);
// Returns a span in whole units: "12s", "45m", "3h20m" or "2d4h". A negative span is shown as 0.
std::string short_age(double milliseconds);

// Parses a time like "2026-01-01T00:00:00.123Z" into Unix time. Returns nullopt if the text is not a time.
std::optional<std::int64_t> unix_ms_of(const std::string& text);

template <std::integral Number>
std::string short_bytes(Number bytes) {
  return short_bytes(static_cast<double>(bytes));
}
template <std::integral Number>
std::string short_rate(Number bytes_per_second) {
  return short_rate(static_cast<double>(bytes_per_second));
}
template <std::integral Number>
std::string short_span(Number milliseconds) {
  return short_span(static_cast<double>(milliseconds));
}
template <std::integral Number>
std::string short_age(Number milliseconds) {
  return short_age(static_cast<double>(milliseconds));
}

// These functions join texts with a separator between them. Without texts, joined() returns an empty text,
// and joined_or_dash() returns "-".
std::string joined(const std::vector<std::string>& texts, std::string_view separator);
std::string joined_or_dash(const std::vector<std::string>& texts, std::string_view separator);
// Returns how long ago the time was, or "-" if the text is not a time.
std::string age_of(const std::string& time, const Layout& layout);
// These functions return a value as text, or "-" if the value is unknown.
template <class Number>
std::string span_or_dash(const std::optional<Number>& milliseconds) {
  return milliseconds ? short_span(*milliseconds) : "-";
}
template <class Number>
std::string bytes_or_dash(const std::optional<Number>& bytes) {
  return bytes ? short_bytes(*bytes) : "-";
}
template <class Number>
std::string rate_or_dash(const std::optional<Number>& bytes_per_second) {
  return bytes_per_second ? short_rate(*bytes_per_second) : "-";
}

}  // namespace ckpt::cli
