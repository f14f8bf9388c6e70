// SPDX-License-Identifier: Apache-2.0
// Sizes, spans and ages in few columns, as screens show them, and times of the API as numbers. Pure.
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

// "130 MiB", "1.5 GiB", "312 B".
std::string short_bytes(double bytes);
// "40 MiB/s"; with two numbers of the same unit "12/40 MiB/s".
std::string short_rate(double bytes_per_second);
std::string short_rate_of(double bytes_per_second, double limit);
// "1.3 ms", "200 ms", "7.3 s", "2m10s".
std::string short_span(double milliseconds);
// Whole units, as of a time that is long past or far off: "12s", "45m", "3h20m", "2d4h". Negative ones are 0.
std::string short_age(double milliseconds);

// Unix time of "2026-01-01T00:00:00.123Z"; nothing if it is none.
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

// The texts with the separator between them; empty, or "-", where there is none.
std::string joined(const std::vector<std::string>& texts, std::string_view separator);
std::string joined_or_dash(const std::vector<std::string>& texts, std::string_view separator);
// How long ago a time was; "-" for a text that is none.
std::string age_of(const std::string& time, const Layout& layout);
// "-" for what is not known.
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
