// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/settings/table.h"

#include <algorithm>
#include <type_traits>

#include "libckpt/net/control/toml_text.h"

namespace ckpt::settings {
namespace {

std::string quoted(const std::string& key) {
  return "\"" + key + "\"";
}

std::string one_of(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return text;
}

// A visitor that stores the value of a TOML node in a setting. Each overload returns what the value must be,
// without source and key, or an empty string on success.
class Taker {
 public:
  Taker(const toml::node& node, const Allowed& allowed) : node_(node), allowed_(allowed) {}

  std::string operator()(std::string* out) const {
    const auto value = node_.value_exact<std::string>();
    if (!value) return "must be a string";
    if (allowed_.required && value->empty()) return "must not be empty";
    const auto& words = allowed_.words;
    if (!words.empty() && std::find(words.begin(), words.end(), *value) == words.end())
      return "must be " + one_of(words);
    *out = *value;
    return {};
  }
  std::string operator()(bool* out) const {
    const auto value = node_.value_exact<bool>();
    if (!value) return "must be true or false";
    *out = *value;
    return {};
  }
  std::string operator()(std::vector<std::string>* out) const {
    const toml::array* list = node_.as_array();
    std::vector<std::string> values;
    if (list == nullptr) return "must be a list of strings";
    for (const toml::node& entry : *list) {
      const auto value = entry.value_exact<std::string>();
      if (!value) return "must be a list of strings";
      values.push_back(*value);
    }
    *out = std::move(values);
    return {};
  }
  std::string operator()(std::chrono::milliseconds* out) const {
    return number([out](std::int64_t value) { *out = std::chrono::milliseconds(value); });
  }
  template <class Number>
  std::string operator()(Number* out) const {
    return number([out](std::int64_t value) { *out = static_cast<Number>(value); });
  }

 private:
  template <class Set>
  std::string number(Set set) const {
    const auto value = node_.value_exact<std::int64_t>();
    if (!value || *value < allowed_.min || *value > allowed_.max)
      return "must be a whole number from " + std::to_string(allowed_.min) + " to " +
             std::to_string(allowed_.max);
    set(*value);
    return {};
  }

  const toml::node& node_;
  const Allowed& allowed_;
};

// Reads all keys of a table. `prefix` precedes each key of this table: "" or "timeouts.".
Result<void> apply_all(const toml::table& table, const std::string& source, const std::string& prefix,
                       const std::vector<Setting>& settings) {
  for (const Setting& setting : settings) {
    if (!setting.key.starts_with(prefix)) continue;
    const std::string name = setting.key.substr(prefix.size());
    if (name.find('.') != std::string::npos) continue;
    const toml::node* node = table.get(name);
    if (node == nullptr && setting.allowed.required) return bad(source, quoted(setting.key) + " is required");
    if (node == nullptr) continue;
    const std::string wrong = std::visit(Taker(*node, setting.allowed), setting.value);
    if (!wrong.empty()) return bad(source, quoted(setting.key) + " " + wrong);
  }
  return ok();
}

bool has_key(const std::vector<Setting>& settings, const std::string& key) {
  return std::any_of(settings.begin(), settings.end(), [&](const Setting& at) { return at.key == key; });
}

bool has_table(const std::vector<Setting>& settings, const std::string& key) {
  return std::any_of(settings.begin(), settings.end(),
                     [&](const Setting& at) { return at.key.starts_with(key + "."); });
}

// A key of earlier builds, with its current name.
struct RenamedKey {
  std::string_view former;
  std::string_view current;
};
constexpr RenamedKey kRenamedKeys[] = {
    {"switch_timeout_ms", "handover_timeout_ms"},
    {"timeouts.switch_ms", "timeouts.handover_ms"},
    {"vault_dir", "checkpoint_store_dir"},
    {"vault_limit_mib", "checkpoint_store_limit_mib"},
    {"vault_memory", "checkpoint_store_memory"},
    {"vault_memory_limit_mib", "checkpoint_store_memory_limit_mib"},
    {"vault_port", "checkpoint_store_port"},
    {"vault_timeout_ms", "checkpoint_store_timeout_ms"},
};

// Returns the current name of a key of earlier builds, or an empty string if the list has no such key.
std::string current_name(const std::vector<Setting>& settings, const std::string& key) {
  for (const RenamedKey& renamed : kRenamedKeys) {
    std::string current(renamed.current);
    if (renamed.former == key && has_key(settings, current)) return current;
  }
  return {};
}

Error unknown(const std::string& source, const std::string& key, const toml::node& node,
              const std::vector<Setting>& settings) {
  const std::string current = current_name(settings, key);
  return bad(source, "unknown key " + quoted(key) + " at line " + std::to_string(node.source().begin.line) +
                         (current.empty() ? "" : ": it is now " + quoted(current)));
}

}  // namespace

Error bad(const std::string& source, const std::string& what) {
  return {ErrorCode::kInvalidArgument, source + ": " + what};
}

Result<toml::table> parse(std::string_view text, const std::string& source) {
  CKPT_TRYV(control::check_toml_text(text, source));
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& e) {
    return bad(source, "line " + std::to_string(e.source().begin.line) + ": " + std::string(e.description()));
  }
}

Result<void> read(const toml::table& table, const std::string& source, const std::vector<Setting>& settings,
                  const std::vector<std::string>& elsewhere) {
  for (const auto& [name, node] : table) {
    const std::string key(name.str());
    if (has_key(settings, key) || std::find(elsewhere.begin(), elsewhere.end(), key) != elsewhere.end())
      continue;
    if (!has_table(settings, key)) return unknown(source, key, node, settings);
    if (!node.is_table()) return bad(source, quoted(key) + " must be a table");
    CKPT_TRYV(read_one(*node.as_table(), source, key, settings));
  }
  return apply_all(table, source, "", settings);
}

Result<std::vector<const toml::table*>> tables_of(const toml::table& table, const std::string& source,
                                                  const std::string& key) {
  std::vector<const toml::table*> tables;
  const toml::node* node = table.get(key);
  if (node == nullptr) return tables;
  const toml::array* list = node->as_array();
  if (list == nullptr || !list->is_homogeneous<toml::table>())
    return bad(source, quoted(key) + " must be written as [[" + key + "]]");
  for (const toml::node& entry : *list) tables.push_back(entry.as_table());
  return tables;
}

Result<void> read_one(const toml::table& table, const std::string& source, const std::string& key,
                      const std::vector<Setting>& settings) {
  for (const auto& [name, node] : table) {
    const std::string whole = key + "." + std::string(name.str());
    if (!has_key(settings, whole)) return unknown(source, whole, node, settings);
  }
  return apply_all(table, source, key + ".", settings);
}

}  // namespace ckpt::settings
