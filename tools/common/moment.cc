// SPDX-License-Identifier: Apache-2.0
#include "tools/common/moment.h"

#include <algorithm>
#include <ctime>
#include <string>

#include "tools/common/units.h"

namespace ckpt::tools {
namespace {

// Parses a time without a fraction. strptime would leave a fraction unparsed.
bool parse(const std::string& text, const char* format, std::tm& parts) {
  parts = {};
  const char* end = ::strptime(text.c_str(), format, &parts);
  return end != nullptr && *end == '\0';
}

}  // namespace

Result<std::int64_t> parse_moment_ms(std::string_view text, std::int64_t now_ms) {
  if (const auto ago = parse_duration_ns(text)) return std::max<std::int64_t>(0, now_ms - *ago / 1'000'000);
  std::string plain(text.substr(0, 64));
  if (plain.ends_with('Z')) plain.pop_back();
  std::replace(plain.begin(), plain.end(), 'T', ' ');
  std::tm parts{};
  const bool is_time = parse(plain, "%Y-%m-%d %H:%M:%S", parts) || parse(plain, "%Y-%m-%d %H:%M", parts);
  const std::int64_t seconds = is_time ? static_cast<std::int64_t>(::timegm(&parts)) : -1;
  if (seconds < 0)
    return Error(ErrorCode::kInvalidArgument, "\"" + std::string(text.substr(0, 40)) +
                                                  "\" is not a time; write it like 10m (ago) or "
                                                  "2026-11-24T03:34:31Z");
  return seconds * 1000;
}

}  // namespace ckpt::tools
