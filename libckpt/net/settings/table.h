// SPDX-License-Identifier: Apache-2.0
// Reads a TOML file by a list of settings (setting.h). What the list does not have is refused, so that a misspelt key
// is noticed at start and not in an outage.
// Threads: pure functions. Ownership: values are written to where the list points. Errors: kInvalidArgument naming the
// source, the key or line, and what is expected there.
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
// `elsewhere`: keys that the caller reads otherwise.
Result<void> read(const toml::table& table, const std::string& source, const std::vector<Setting>& settings,
                  const std::vector<std::string>& elsewhere = {});
// An array of tables; none if it is absent.
Result<std::vector<const toml::table*>> tables_of(const toml::table& table, const std::string& source,
                                                  const std::string& key);
// One table of such an array; the list's keys begin with "KEY.".
Result<void> read_one(const toml::table& table, const std::string& source, const std::string& key,
                      const std::vector<Setting>& settings);

}  // namespace ckpt::settings
