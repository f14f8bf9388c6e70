// SPDX-License-Identifier: Apache-2.0
// Text that fits a terminal, and tables of it. Columns are as wide as their widest cell, with two blanks
// between. Where a layout has a width, columns that may be shortened are, then those of the highest rank
// leave. No line is ever wrapped. Cells come from other machines, so control characters are shown as '?'.
// Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/gpumigrate/client/screen.h"

namespace ckpt::cli {

enum class Tone { kPlain, kGood, kWarning, kBad, kFaint };

struct Cell {
  Cell(std::string shown, Tone in = Tone::kPlain)
      : text(std::move(shown)), tone(in) {}                                   // NOLINT: a text is one
  Cell(const char* shown, Tone in = Tone::kPlain) : text(shown), tone(in) {}  // NOLINT
  std::string text;
  Tone tone;
};

struct ColumnRule {
  int rank = 0;           // 0: always there; of the others the highest leaves first where they do not fit
  std::size_t least = 0;  // not 0: its cells may be shortened to so many columns
  bool wide = false;      // with -o wide only
  bool right = false;     // its cells stand at its right edge
};

struct Column {
  Column(const char* name, ColumnRule with = {}) : title(name), rule(with) {}  // NOLINT: a title is a column
  std::string title;
  ColumnRule rule;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // As many cells as there are columns.
  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  [[nodiscard]] bool empty() const { return rows_.empty(); }
  [[nodiscard]] std::string text(const Layout& layout = {}) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// Without control characters, which could change what the terminal shows.
std::string printable(std::string_view text);

// Columns that UTF-8 takes on a terminal.
std::size_t width_of(std::string_view text);

// In at most `width` columns: what is cut off is shown by "…".
std::string shortened(const std::string& text, std::size_t width);

// Broken at blanks into lines of at most `width` columns; a longer word is cut.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

// With the terminal's codes for it, if the layout has colours.
std::string coloured(const std::string& text, Tone tone, const Layout& layout);

}  // namespace ckpt::cli
