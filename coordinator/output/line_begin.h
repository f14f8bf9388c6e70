// SPDX-License-Identifier: Apache-2.0
// Where the first whole line of a piece of output begins: a log that is cut should begin with one.
// Pure. Errors: none.
#pragma once

#include <cstddef>
#include <string_view>

namespace ckpt::coordinator {

inline constexpr std::size_t kLongestPassedLine = std::size_t{64} << 10;

// 0 where no line ends within the first kLongestPassedLine bytes.
[[nodiscard]] constexpr std::size_t line_begin(std::string_view bytes) {
  const std::size_t end = bytes.substr(0, kLongestPassedLine).find('\n');
  return end == std::string_view::npos ? 0 : end + 1;
}

}  // namespace ckpt::coordinator
