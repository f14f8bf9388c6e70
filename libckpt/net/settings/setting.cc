// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/settings/setting.h"

#include <string_view>
#include <type_traits>

#include "libckpt/net/control/toml_text.h"

namespace ckpt::settings {
namespace {

// Returns the unit that the ending of the key implies.
std::string unit_of(std::string_view key) {
  for (const auto& [ending, unit] : {std::pair("_ms", " ms"), std::pair("_mib", " MiB"),
                                     std::pair("_bytes", " bytes"), std::pair("_days", " days")})
    if (key.ends_with(ending)) return unit;
  return {};
}

std::string words_text(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + ("`" + words[i] + "`");
  return text;
}

std::string range_text(const Setting& setting) {
  const std::string unit = unit_of(setting.key);
  if (setting.allowed.max == std::numeric_limits<std::int64_t>::max())
    return std::to_string(setting.allowed.min) + unit + " or more";
  return std::to_string(setting.allowed.min) + " to " + std::to_string(setting.allowed.max) + unit;
}

std::string values_text(const Setting& setting) {
  if (std::holds_alternative<std::string*>(setting.value))
    return setting.allowed.words.empty() ? "text" : words_text(setting.allowed.words);
  if (std::holds_alternative<bool*>(setting.value)) return "`true` or `false`";
  if (std::holds_alternative<std::vector<std::string>*>(setting.value)) return "list of texts";
  return range_text(setting);
}

std::string list_text(const std::vector<std::string>& texts) {
  std::string text;
  for (const std::string& each : texts) text += (text.empty() ? "" : ", ") + control::toml_string(each);
  return "`[" + text + "]`";
}

std::string default_text(const Setting& setting) {
  if (setting.allowed.required) return "required";
  return std::visit(
      [](const auto* value) -> std::string {
        using Type = std::remove_cvref_t<decltype(*value)>;
        if constexpr (std::is_same_v<Type, std::string>)
          return "`" + control::toml_string(*value) + "`";
        else if constexpr (std::is_same_v<Type, bool>)
          return *value ? "`true`" : "`false`";
        else if constexpr (std::is_same_v<Type, std::vector<std::string>>)
          return list_text(*value);
        else if constexpr (std::is_same_v<Type, std::chrono::milliseconds>)
          return "`" + std::to_string(value->count()) + "`";
        else
          return "`" + std::to_string(*value) + "`";
      },
      setting.value);
}

}  // namespace

std::string describe(const std::vector<Setting>& settings) {
  std::string rows;
  for (const Setting& setting : settings)
    rows += "| `" + setting.key + "` | " + values_text(setting) + " | " + default_text(setting) + " | " +
            setting.meaning + " |\n";
  return rows;
}

}  // namespace ckpt::settings
