// SPDX-License-Identifier: Apache-2.0
// The begin of the first whole line in a piece of output. A truncated log should begin with a whole line.
// Pure. Errors: none.
#pragma once

#include <cstddef>
#include <string_view>

namespace ckpt::coordinator {

inline constexpr std::size_t kLongestPassedLine = std::size_t{64} << 10;

// Returns the offset of the first whole line. Returns 0 if no line ends within the first kLongestPassedLine
// bytes.
[[nodiscard]] constexpr std::size_t line_begin(std::string_view bytes) {
  const std::size_t end = bytes.substr(0, kLongestPassedLine).find('\n');
  return end == std::string_view::npos ? 0 : end + 1;
}

}  // namespace ckpt::coordinator
