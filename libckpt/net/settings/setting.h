// SPDX-License-Identifier: Apache-2.0
// The keys of a daemon's settings, as one list: where each value goes, which values are allowed, and what it does.
// A file is read by it (table.h), and the pages about settings are made from it, so that they cannot differ.
//
//   std::vector<Setting> settings_of(Config& config) {
//     return {{"log_level", &config.log_level, "Least severe lines that are logged.", {.words = {"info", "warn"}}},
//             {"timeouts.pause_ms", &config.pause_timeout, "...", {.least = 1, .most = 1000}}};
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
  bool required = false;  // of a table's key: where the table stands in the file
  std::int64_t least = 0;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  std::vector<std::string> words{};  // one of these; empty: any text
};

struct Setting {
  std::string key;      // "timeouts.pause_ms" stands in the table [timeouts]
  Value value;          // its default, until a file has been read
  std::string meaning;  // sentences in Markdown
  Allowed allowed{};
};

// Rows of a Markdown table: key, values, default, meaning. Defaults are what the list points to.
[[nodiscard]] std::string describe(const std::vector<Setting>& settings);

}  // namespace ckpt::settings
