// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/screens/frame.h"

#include <algorithm>
#include <set>

namespace ckpt::cli {
namespace {

Frame lines_of(const std::string& text) {
  Frame lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

}  // namespace

Frame frame_of(const std::string& text, ScreenSize size) {
  Frame lines = lines_of(text);
  const std::size_t rows = std::max<std::size_t>(size.rows, 2) - 1;
  if (lines.size() <= rows) return lines;
  const std::size_t left_out = lines.size() - rows + 1;
  lines.resize(rows);
  lines.back() = std::to_string(left_out) + " more";
  return lines;
}

std::string redraw(const Frame& shown, const Frame& next) {
  if (shown == next) return "";
  std::string out = shown.empty() ? "" : "\x1b[" + std::to_string(shown.size()) + "A";
  for (const std::string& line : next) out += "\r" + line + "\x1b[K\n";
  return out + "\x1b[J";
}

std::string news(const std::string& before, const std::string& key, const std::string& text) {
  const Frame old = lines_of(before);
  const std::set<std::string> known(old.begin(), old.end());
  const Frame keys = lines_of(key);
  const Frame lines = lines_of(text);
  std::string out;
  for (std::size_t i = 0; i < lines.size(); i++)
    if (i >= keys.size() || !known.contains(keys[i])) out += lines[i] + "\n";
  return out;
}

}  // namespace ckpt::cli
