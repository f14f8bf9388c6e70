// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/control/toml_text.h"

#include <algorithm>

namespace ckpt::control {
namespace {

bool is_ascii(char c) {
  return static_cast<unsigned char>(c) < 0x80;
}
bool ends_line(char c) {
  return c >= '\n' && c <= '\r';
}
// Checks for line ends that are not ASCII. toml++ recognizes them, but readers do not see them.
bool has_hidden_line_end(std::string_view text) {
  for (const std::string_view end : {"\xC2\x85", "\xE2\x80\xA8", "\xE2\x80\xA9"})
    if (text.find(end) != std::string_view::npos) return true;
  return false;
}

// The position in one text, which is tracked through single-line strings and comments.
class Place {
 public:
  void take(char c) {
    if (ends_line(c)) {
      inside_ = 0;
      escaped_ = false;
      line_ += c == '\n' ? 1 : 0;
    } else if (escaped_) {
      escaped_ = false;
    } else if (inside_ == '"' && c == '\\') {
      escaped_ = true;
    } else if (inside_ == 0 && (c == '"' || c == '\'' || c == '#')) {
      inside_ = c;
    } else if (inside_ == c && c != '#') {
      inside_ = 0;
    }
  }
  [[nodiscard]] bool outside() const noexcept { return inside_ == 0; }
  [[nodiscard]] unsigned line() const noexcept { return line_; }

 private:
  char inside_ = 0;  // the character that began the string or comment; 0 outside of both
  bool escaped_ = false;
  unsigned line_ = 1;
};

}  // namespace

Result<void> check_toml_text(std::string_view text, const std::string& source) {
  if (std::all_of(text.begin(), text.end(), is_ascii)) return ok();
  const auto refuse = [&](unsigned line) {
    return Error(ErrorCode::kInvalidArgument,
                 source + " line " + std::to_string(line) +
                     ": non-ASCII characters are allowed only in comments and single-line strings");
  };
  const bool several_lines =
      text.find("\"\"\"") != std::string_view::npos || text.find("'''") != std::string_view::npos;
  if (several_lines || has_hidden_line_end(text)) return refuse(1);
  std::string_view rest = text;
  if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);  // removes a byte order mark
  Place place;
  for (const char c : rest) {
    if (!is_ascii(c) && place.outside()) return refuse(place.line());
    place.take(c);
  }
  return ok();
}

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

}  // namespace ckpt::control
