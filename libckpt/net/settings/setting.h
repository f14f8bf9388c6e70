// SPDX-License-Identifier: Apache-2.0
// The keys of a daemon's settings, as one list. Each entry has the location of its value, the allowed values
// and a description. The list controls how a file is read (table.h). The pages about settings are generated
// from it, so that file and pages cannot differ.
//
//   std::vector<Setting> settings_of(Config& config) {
//     return {{"log_level", &config.log_level, "Least severe lines that are logged.", {.words = {"info", "warn"}}},
//             {"timeouts.pause_ms", &config.pause_timeout, "...", {.min = 1, .max = 1000}}};
//   }
//
// Threads: pure functions. Ownership: a list points into the caller's Config. Errors: none.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

namespace ckpt::settings {

using Value = std::variant<std::string*, bool*, std::uint16_t*, std::uint32_t*, std::uint64_t*, std::int64_t*,
                           std::chrono::milliseconds*, std::vector<std::string>*>;

struct Allowed {
  bool required = false;  // whether the key must be present wherever its table is; a required text must not
                          // be empty
  std::int64_t min = 0;
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
  std::vector<std::string> words{};  // the allowed values; if empty, any text
};

struct Setting {
  std::string key;      // the full name: "timeouts.pause_ms" is in the table [timeouts]
  Value value;          // the location of the value; until a file is read, this value is the default
  std::string meaning;  // the description, as sentences in Markdown
  Allowed allowed{};
};

// Returns the rows of a Markdown table: key, values, default, meaning. The defaults are the values that the
// list points to.
[[nodiscard]] std::string describe(const std::vector<Setting>& settings);

}  // namespace ckpt::settings
