// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/table.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

namespace ckpt::cli {
namespace {

constexpr std::size_t kGap = 2;  // number of blanks between columns
constexpr std::string_view kCut = "…";

// A code point and its length in bytes. A byte that is not valid UTF-8 counts as one code point.
struct CodePoint {
  char32_t value;
  std::size_t bytes;
};

CodePoint code_point_at(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const std::size_t bytes = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
  if (bytes == 1 || at + bytes > text.size()) return {lead, 1};
  char32_t value = lead & (0x7FU >> bytes);
  for (std::size_t i = 1; i < bytes; i++)
    value = (value << 6) | (static_cast<unsigned char>(text[at + i]) & 0x3FU);
  return {value, bytes};
}

std::size_t columns_of(char32_t value) {
  constexpr std::array<std::pair<char32_t, char32_t>, 9> kTwice = {{{0x1100, 0x115F},
                                                                    {0x2E80, 0xA4CF},
                                                                    {0xAC00, 0xD7A3},
                                                                    {0xF900, 0xFAFF},
                                                                    {0xFE30, 0xFE6F},
                                                                    {0xFF00, 0xFF60},
                                                                    {0xFFE0, 0xFFE6},
                                                                    {0x1F300, 0x1FAFF},
                                                                    {0x20000, 0x3FFFD}}};
  if ((value >= 0x300 && value <= 0x36F) || (value >= 0x200B && value <= 0x200F)) return 0;
  return std::any_of(kTwice.begin(), kTwice.end(),
                     [value](const auto& range) { return value >= range.first && value <= range.second; })
             ? 2
             : 1;
}

// Returns the length of the longest prefix that uses at most `width` columns.
std::size_t bytes_within(std::string_view text, std::size_t width) {
  std::size_t at = 0;
  for (std::size_t used = 0; at < text.size();) {
    const CodePoint next = code_point_at(text, at);
    used += columns_of(next.value);
    if (used > width) break;
    at += next.bytes;
  }
  return at;
}

const char* code_of(Tone tone) {
  switch (tone) {
    case Tone::kGood:
      return "\x1b[32m";
    case Tone::kWarning:
      return "\x1b[33m";
    case Tone::kBad:
      return "\x1b[31m";
    case Tone::kFaint:
      return "\x1b[2m";
    case Tone::kPlain:
      break;
  }
  return "";
}

// The choice of the columns to show, and of their widths.
class Fitting {
 public:
  Fitting(const std::vector<Column>& columns, std::vector<std::size_t> natural, const Layout& layout)
      : columns_(columns), natural_(std::move(natural)) {
    for (std::size_t i = 0; i < columns_.size(); i++)
      if (layout.wide || !columns_[i].rule.wide) shown_.push_back(i);
    while (least_width() > layout.width) {
      if (!drop_one()) break;
    }
    share_out(layout.width);
  }

  [[nodiscard]] const std::vector<std::size_t>& shown() const { return shown_; }
  [[nodiscard]] std::size_t width(std::size_t column) const { return widths_[column]; }

 private:
  [[nodiscard]] std::size_t least_of(std::size_t column) const {
    const std::size_t least = std::max(columns_[column].rule.min_width, width_of(columns_[column].title));
    return columns_[column].rule.min_width == 0 ? natural_[column] : std::min(natural_[column], least);
  }
  [[nodiscard]] std::size_t least_width() const {
    return std::accumulate(shown_.begin(), shown_.end(), shown_.empty() ? 0 : kGap * (shown_.size() - 1),
                           [this](std::size_t sum, std::size_t column) { return sum + least_of(column); });
  }
  bool drop_one() {
    const auto last = std::max_element(shown_.begin(), shown_.end(), [this](std::size_t a, std::size_t b) {
      return columns_[a].rule.rank < columns_[b].rule.rank;
    });
    if (last == shown_.end() || columns_[*last].rule.rank == 0) return false;
    shown_.erase(last);
    return true;
  }
  // Distributes spare width among the shortened columns, first to the columns that lack the least.
  void share_out(std::size_t width) {
    widths_.assign(columns_.size(), 0);
    const std::size_t least = least_width();
    std::size_t spare = width > least ? width - least : 0;
    const auto lacking = [this](std::size_t column) { return natural_[column] - least_of(column); };
    std::vector<std::size_t> order = shown_;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return lacking(a) < lacking(b); });
    for (const std::size_t column : order) {
      const std::size_t more = std::min(spare, lacking(column));
      widths_[column] = least_of(column) + more;
      spare -= more;
    }
  }

  const std::vector<Column>& columns_;
  std::vector<std::size_t> natural_;
  std::vector<std::size_t> shown_;
  std::vector<std::size_t> widths_;
};

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); i++) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    // Some terminals also treat U+0080 to U+009F as control characters.
    const bool wide_control = byte == 0xC2 && next >= 0x80 && next < 0xA0;
    if (wide_control) i++;
    out += byte < 0x20 || byte == 0x7F || wide_control ? '?' : text[i];
  }
  return out;
}

std::size_t width_of(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint next = code_point_at(text, at);
    width += columns_of(next.value);
    at += next.bytes;
  }
  return width;
}

std::string shortened(const std::string& text, std::size_t width) {
  if (width_of(text) <= width) return text;
  if (width == 0) return "";
  return text.substr(0, bytes_within(text, width - 1)) + std::string(kCut);
}

std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  while (width_of(text) > width && width > 0) {
    const std::size_t fits = bytes_within(text, width);
    const std::size_t blank = text.rfind(' ', fits);
    const bool at_blank = blank != std::string_view::npos && blank > 0;
    const std::size_t end = at_blank ? blank : std::max<std::size_t>(fits, 1);
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(at_blank ? end + 1 : end);
  }
  lines.emplace_back(text);
  return lines;
}

std::string coloured(const std::string& text, Tone tone, const Layout& layout) {
  if (!layout.colour || tone == Tone::kPlain || text.empty()) return text;
  return code_of(tone) + text + "\x1b[0m";
}

std::string Table::text(const Layout& layout) const {
  std::vector<std::size_t> natural;
  for (const Column& column : columns_) natural.push_back(width_of(column.title));
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size() && i < natural.size(); i++)
      natural[i] = std::max(natural[i], width_of(printable(row[i].text)));
  const Fitting fitting(columns_, natural, layout);

  const auto line_of = [&](auto cell_of) {
    std::string line;
    std::size_t used = 0;
    std::size_t blanks = 0;  // the blanks before the next cell
    for (const std::size_t i : fitting.shown()) {
      const Cell cell = cell_of(i);
      const std::string shown = shortened(printable(cell.text), fitting.width(i));
      const std::size_t rest = fitting.width(i) - std::min(fitting.width(i), width_of(shown));
      const std::size_t before = blanks + (columns_[i].rule.right ? rest : 0);
      blanks = kGap + (columns_[i].rule.right ? 0 : rest);
      if (shown.empty()) {
        blanks += before;
        continue;
      }
      if (used + before >= layout.width) break;
      const std::string fits = shortened(shown, layout.width - used - before);
      line += std::string(before, ' ') + coloured(fits, cell.tone, layout);
      used += before + width_of(fits);
    }
    return line + "\n";
  };
  std::string out = line_of([&](std::size_t i) { return Cell(columns_[i].title); });
  for (const auto& row : rows_)
    out += line_of([&](std::size_t i) { return i < row.size() ? row[i] : Cell(""); });
  return out;
}

}  // namespace ckpt::cli
