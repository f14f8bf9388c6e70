// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/control/http_target.h"

namespace ckpt::control {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool unescape(std::string_view text, std::string& out) {
  out.clear();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    if (i + 2 >= text.size()) return false;
    const int high = hex_digit(text[i + 1]);
    const int low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0) return false;
    out.push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return true;
}

// The pieces of `text` between `separator`s.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const auto end = text.find(separator);
    pieces.push_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return pieces;
}

}  // namespace

std::optional<HttpTarget> parse_http_target(std::string_view text) {
  const auto question = text.find('?');
  const std::string_view path = text.substr(0, question);
  if (path.empty() || path.front() != '/') return std::nullopt;
  HttpTarget target;
  for (const std::string_view piece : split(path.substr(1), '/')) {
    if (!unescape(piece, target.path.emplace_back())) return std::nullopt;
  }
  if (question == std::string_view::npos) return target;
  for (const std::string_view piece : split(text.substr(question + 1), '&')) {
    const auto equals = piece.find('=');
    std::string key;
    std::string value;
    if (!unescape(piece.substr(0, equals), key)) return std::nullopt;
    if (equals != std::string_view::npos && !unescape(piece.substr(equals + 1), value)) return std::nullopt;
    target.query[key] = std::move(value);
  }
  return target;
}

}  // namespace ckpt::control
