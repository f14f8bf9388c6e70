// SPDX-License-Identifier: Apache-2.0
// Reads a TOML file by a list of settings (setting.h). Keys that the list does not contain are refused, so
// that a misspelled key is noticed at start and not during an outage. The error for a key of an earlier build
// has its current name.
// Threads: pure functions. Ownership: values are written to the places that the list points to. Errors:
// kInvalidArgument with the source, the key or line, and the expected value.
#pragma once

#include <toml++/toml.h>

#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/net/settings/setting.h"

namespace ckpt::settings {

Error bad(const std::string& source, const std::string& what);

Result<toml::table> parse(std::string_view text, const std::string& source);
// Reads the table into the settings. `elsewhere` lists keys that the caller reads separately.
Result<void> read(const toml::table& table, const std::string& source, const std::vector<Setting>& settings,
                  const std::vector<std::string>& elsewhere = {});
// Returns the tables of an array. Returns no tables if the array is absent.
Result<std::vector<const toml::table*>> tables_of(const toml::table& table, const std::string& source,
                                                  const std::string& key);
// Reads one table of an array of tables. The keys in the list begin with "KEY.".
Result<void> read_one(const toml::table& table, const std::string& source, const std::string& key,
                      const std::vector<Setting>& settings);

}  // namespace ckpt::settings
