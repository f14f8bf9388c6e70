// SPDX-License-Identifier: Apache-2.0
// A check of a daemon's configuration before toml++ reads it, and the notation of strings in one. TOML allows
// no characters beyond ASCII outside of strings and comments. On them toml++ 3.3 has undefined behaviour
// (is_non_ascii_horizontal_whitespace reaches an unreachable point). Pure. Errors: kInvalidArgument naming
// source and line.
#pragma once

#include <string>
#include <string_view>

#include "libckpt/base/result.h"

namespace ckpt::control {

// Strings of several lines hold ASCII only, since toml++ decides where one ends.
Result<void> check_toml_text(std::string_view text, const std::string& source);
// With its quotes.
[[nodiscard]] std::string toml_string(std::string_view text);

}  // namespace ckpt::control
