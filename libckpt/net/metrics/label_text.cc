// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/metrics/label_text.h"

#include <cstddef>
#include <cstdint>

namespace ckpt::metrics {
namespace {

constexpr std::size_t kMaxBytes = 128;

// Returns the number of bytes of the well-formed character (RFC 3629) at the beginning of `text`. Returns 0
// if there is none.
std::size_t character_bytes(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = at(0);
  if (first < 0x80) return 1;
  std::size_t bytes = 0;
  if (first >= 0xC2 && first <= 0xDF) bytes = 2;
  if (first >= 0xE0 && first <= 0xEF) bytes = 3;
  if (first >= 0xF0 && first <= 0xF4) bytes = 4;
  if (bytes == 0 || text.size() < bytes) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xE0 && at(1) < 0xA0) || (first == 0xF0 && at(1) < 0x90);
  const bool surrogate = first == 0xED && at(1) > 0x9F;
  const bool beyond = first == 0xF4 && at(1) > 0x8F;
  return overlong || surrogate || beyond ? 0 : bytes;
}

}  // namespace

std::string label_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    const std::string_view next = bytes == 0 ? "?" : text.substr(0, bytes);
    if (out.size() + next.size() > kMaxBytes) break;
    out += next;
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return out;
}

}  // namespace ckpt::metrics
