// SPDX-License-Identifier: Apache-2.0
// Targets of HTTP requests. An accepted target, written again with every character escaped, means the same.
#include "libckpt/net/control/http_target.h"
#include "tests/fuzz/fuzz.h"

namespace ckpt::fuzz {
namespace {

std::string escaped(const std::string& text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return out;
}

std::string written(const control::HttpTarget& target) {
  std::string text;
  for (const std::string& piece : target.path) text += "/" + escaped(piece);
  if (target.path.empty()) text = "/";
  // An empty part after the last slash is not a segment.
  if (!target.path.empty() && target.path.back().empty()) text += "/";
  char separator = '?';
  for (const auto& [key, value] : target.query) {
    text += separator + escaped(key) + "=" + escaped(value);
    separator = '&';
  }
  return text;
}

}  // namespace
}  // namespace ckpt::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt;
  const std::string text = fuzz::Input(data, size).text();
  const auto target = control::parse_http_target(text);
  if (!target) return 0;
  std::size_t bytes = 0;
  for (const std::string& piece : target->path) bytes += piece.size();
  for (const auto& [key, value] : target->query) bytes += key.size() + value.size();
  FUZZ_CHECK(bytes < text.size());
  const auto again = control::parse_http_target(fuzz::written(*target));
  FUZZ_CHECK(again && again->path == target->path && again->query == target->query);
  return 0;
}
