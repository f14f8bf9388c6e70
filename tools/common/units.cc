// SPDX-License-Identifier: Apache-2.0
#include "tools/common/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace ckpt::tools {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array kSizeUnits = {
    Unit{"B", 1},    Unit{"KiB", 1024.0},          Unit{"MiB", 1048576.0},
    Unit{"KB", 1e3}, Unit{"GiB", 1073741824.0},    Unit{"MB", 1e6},
    Unit{"GB", 1e9}, Unit{"TiB", 1099511627776.0}, Unit{"TB", 1e12},
};
constexpr std::array kTimeUnits = {
    Unit{"us", 1e3}, Unit{"ms", 1e6}, Unit{"s", 1e9}, Unit{"m", 60e9}, Unit{"h", 3600e9},
};

Error refuse(std::string_view what, std::string_view text, std::string_view example) {
  return Error(ErrorCode::kInvalidArgument, "\"" + std::string(text.substr(0, 40)) + "\" is not a " +
                                                std::string(what) + "; write it like " +
                                                std::string(example));
}

// Splits "12.5ms" into 12.5 and "ms". Only digits and one point are accepted: no sign, no exponent, no
// blanks.
bool split(std::string_view text, double& number, std::string_view& unit) {
  std::size_t end = 0;
  int points = 0;
  while (end < text.size() && ((text[end] >= '0' && text[end] <= '9') || text[end] == '.')) {
    points += text[end] == '.';
    end++;
  }
  if (end == 0 || points > 1 || text[0] == '.' || text[end - 1] == '.') return false;
  const auto [rest, failure] =
      std::from_chars(text.data(), text.data() + end, number, std::chars_format::fixed);
  if (failure != std::errc{} || rest != text.data() + end) return false;
  unit = text.substr(end);
  return true;
}

template <std::size_t n>
const Unit* find(const std::array<Unit, n>& units, std::string_view name) {
  for (const Unit& unit : units) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

// Values stay below 2^62, so that sums of two values never overflow.
constexpr double kLargest = 4.6e18;

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  double number = 0;
  std::string_view name;
  if (!split(text, number, name)) return refuse("size", text, "2GiB or 512MiB");
  const Unit* unit = find(kSizeUnits, name.empty() ? "B" : name);
  if (unit == nullptr) return refuse("size", text, "2GiB or 512MiB");
  const double bytes = number * unit->factor;
  if (bytes > kLargest || bytes != std::floor(bytes))
    return refuse("whole number of bytes", text, "2GiB or 512MiB");
  return static_cast<std::uint64_t>(bytes);
}

Result<std::uint64_t> parse_rate(std::string_view text) {
  if (!text.ends_with("/s")) return refuse("rate", text, "10GiB/s");
  auto size = parse_size(text.substr(0, text.size() - 2));
  if (!size || *size == 0) return refuse("rate", text, "10GiB/s");
  return size;
}

Result<std::int64_t> parse_duration_ns(std::string_view text) {
  if (text == "0") return std::int64_t{0};
  double number = 0;
  std::string_view name;
  if (!split(text, number, name)) return refuse("duration", text, "200ms, 30s or 10m");
  const Unit* unit = find(kTimeUnits, name);
  if (unit == nullptr || number * unit->factor > kLargest)
    return refuse("duration", text, "200ms, 30s or 10m");
  return static_cast<std::int64_t>(number * unit->factor);
}

Result<double> parse_share(std::string_view text) {
  double number = 0;
  std::string_view name;
  if (!split(text, number, name) || name != "%" || number > 100)
    return refuse("share", text, "2% (0% to 100%)");
  return number / 100;
}

std::string format_bytes(double bytes) {
  constexpr std::array<const char*, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t i = 0;
  while (bytes >= 1024 && i + 1 < kNames.size()) {
    bytes /= 1024;
    i++;
  }
  char line[48];
  std::snprintf(line, sizeof line, i == 0 ? "%.0f %s" : "%.2f %s", bytes, kNames[i]);
  return line;
}

std::string format_milliseconds(double milliseconds) {
  char line[48];
  if (milliseconds < 1000) {
    std::snprintf(line, sizeof line, milliseconds < 10 ? "%.2f ms" : "%.1f ms", milliseconds);
  } else if (milliseconds < 120'000) {
    std::snprintf(line, sizeof line, "%.1f s", milliseconds / 1000);
  } else {
    const auto seconds = static_cast<std::int64_t>(milliseconds / 1000);
    if (seconds < 3600) {
      std::snprintf(line, sizeof line, "%ldm%02lds", seconds / 60, seconds % 60);
    } else {
      std::snprintf(line, sizeof line, "%ldh%02ldm", seconds / 3600, seconds / 60 % 60);
    }
  }
  return line;
}

}  // namespace ckpt::tools
