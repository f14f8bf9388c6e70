// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/short_text.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>

namespace ckpt::cli {
namespace {

constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};

// Formats a number with at most three digits, without a trailing ".0".
std::string digits_of(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 10 ? "%.1f" : "%.0f", value);
  std::string out = text;
  if (out.ends_with(".0")) out.resize(out.size() - 2);
  return out;
}

std::size_t unit_of(double bytes) {
  std::size_t unit = 0;
  for (; bytes >= 999.5 && unit + 1 < kUnits.size(); unit++) bytes /= 1024;
  return unit;
}

double in_unit(double bytes, std::size_t unit) {
  return bytes / std::pow(1024.0, static_cast<double>(unit));
}

}  // namespace

std::string short_bytes(double bytes) {
  const std::size_t unit = unit_of(bytes);
  return digits_of(in_unit(bytes, unit)) + " " + kUnits[unit];
}

std::string short_rate(double bytes_per_second) {
  return short_bytes(bytes_per_second) + "/s";
}

std::string short_rate_of(double bytes_per_second, double limit) {
  const std::size_t unit = unit_of(limit);
  return digits_of(in_unit(bytes_per_second, unit)) + "/" + digits_of(in_unit(limit, unit)) + " " +
         kUnits[unit] + "/s";
}

std::string short_span(double milliseconds) {
  char text[32];
  if (milliseconds < 999.5) {
    std::snprintf(text, sizeof text, milliseconds < 100 ? "%.1f" : "%.0f", milliseconds);
    std::string number = text;
    if (number.ends_with(".0")) number.resize(number.size() - 2);
    return number + " ms";
  }
  if (milliseconds < 99'950) return digits_of(milliseconds / 1000) + " s";
  const auto seconds = std::llround(milliseconds / 1000);
  if (seconds < 3600)
    std::snprintf(text, sizeof text, "%lldm%02llds", seconds / 60, seconds % 60);
  else
    std::snprintf(text, sizeof text, "%lldh%02lldm", seconds / 3600, seconds / 60 % 60);
  return text;
}

std::string short_age(double milliseconds) {
  constexpr double kLongest = 1e15;  // the limit of a span in milliseconds, which keeps a wrong clock within
                                     // the range of the integer
  const auto seconds = static_cast<std::int64_t>(std::clamp(milliseconds, 0.0, kLongest) / 1000);
  const auto of_two = [](std::int64_t large, const char* large_unit, std::int64_t small,
                         const char* small_unit) {
    return std::to_string(large) + large_unit + (small == 0 ? "" : std::to_string(small) + small_unit);
  };
  if (seconds < 60) return std::to_string(seconds) + "s";
  if (seconds < 3600) return std::to_string(seconds / 60) + "m";
  if (seconds < 86'400) return of_two(seconds / 3600, "h", seconds / 60 % 60, "m");
  return of_two(seconds / 86'400, "d", seconds / 3600 % 24, "h");
}

std::optional<std::int64_t> unix_ms_of(const std::string& text) {
  int year = 0;
  unsigned month = 0;
  unsigned day = 0;
  int hour = 0;
  int minute = 0;
  double second = 0;
  if (std::sscanf(text.c_str(), "%4d-%2u-%2uT%2d:%2d:%9lfZ", &year, &month, &day, &hour, &minute, &second) !=
      6)
    return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year{year}, std::chrono::month{month},
                                         std::chrono::day{day}};
  if (!date.ok()) return std::nullopt;
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  const std::int64_t minutes = (static_cast<std::int64_t>(days) * 24 + hour) * 60 + minute;
  return minutes * 60'000 + std::llround(second * 1000);
}

std::string joined(const std::vector<std::string>& texts, std::string_view separator) {
  std::string out;
  for (const std::string& text : texts) out.append(out.empty() ? "" : separator).append(text);
  return out;
}

std::string joined_or_dash(const std::vector<std::string>& texts, std::string_view separator) {
  std::string out = joined(texts, separator);
  return out.empty() ? "-" : out;
}

std::string age_of(const std::string& time, const Layout& layout) {
  const auto then = unix_ms_of(time);
  return then && layout.ages ? short_age(layout.now_ms - *then) : "-";
}

}  // namespace ckpt::cli
