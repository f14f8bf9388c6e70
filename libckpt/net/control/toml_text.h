// SPDX-License-Identifier: Apache-2.0
// A check of a daemon's configuration before toml++ reads it, and the notation of strings in a configuration.
// TOML allows non-ASCII characters only in strings and comments. toml++ 3.3 has undefined behavior for such
// characters elsewhere (is_non_ascii_horizontal_whitespace reaches an unreachable point). The functions are
// pure. Errors: kInvalidArgument with source and line.
#pragma once

#include <string>
#include <string_view>

#include "libckpt/base/result.h"

namespace ckpt::control {

// Checks the text. Multi-line strings must be ASCII, since only toml++ decides where such a string ends.
Result<void> check_toml_text(std::string_view text, const std::string& source);
// Returns the text as a TOML string, with quotes.
[[nodiscard]] std::string toml_string(std::string_view text);

}  // namespace ckpt::control
