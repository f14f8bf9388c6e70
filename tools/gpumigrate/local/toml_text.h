// SPDX-License-Identifier: Apache-2.0
// A string as TOML writes it. Pure.
#pragma once

#include <string>

namespace ckpt::cli {

[[nodiscard]] inline std::string toml_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

}  // namespace ckpt::cli
