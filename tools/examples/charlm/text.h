// SPDX-License-Identifier: Apache-2.0
// The text that charlm learns: a file, or by default the license texts of Debian, as tokens (the distinct
// bytes in their order). Errors: one line, then the program exits.
// Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ckpt::examples {

struct Text {
  std::vector<std::uint8_t> tokens;
  std::string alphabet;  // the byte of each token
};

// Loads `file`. If `file` is empty, loads all regular files of /usr/share/common-licenses in the order of
// their names.
Text load_text(const std::string& file);

}  // namespace ckpt::examples
