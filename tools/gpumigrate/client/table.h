// SPDX-License-Identifier: Apache-2.0
// Text that fits a terminal, and tables of such text. A column is as wide as its widest cell, with two blanks
// to the next column. If a table is wider than its layout, cells are shortened first. Then the columns of the
// highest rank are omitted. No line is wrapped. Cells come from other machines, so control characters are
// shown as '?'.
// Threads: pure functions.
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
  int rank = 0;               // 0: always shown; otherwise the columns of the highest rank are omitted first
  std::size_t min_width = 0;  // not 0: the column's cells may be shortened to this width
  bool wide = false;          // true: shown only with -o wide
  bool right = false;         // true: the column's cells are aligned to the right
};

struct Column {
  Column(const char* name, ColumnRule with = {}) : title(name), rule(with) {}  // NOLINT: a title is a column
  std::string title;
  ColumnRule rule;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // Adds a row with a cell for each column.
  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  [[nodiscard]] bool empty() const { return rows_.empty(); }
  [[nodiscard]] std::string text(const Layout& layout = {}) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// Replaces control characters, which could change what the terminal shows.
std::string printable(std::string_view text);

// Returns the number of columns that UTF-8 text uses on a terminal.
std::size_t width_of(std::string_view text);

// Shortens a text to at most `width` columns. A "…" at the end shows that the text was truncated.
std::string shortened(const std::string& text, std::size_t width);

// Breaks a text at blanks into lines of at most `width` columns. A longer word is truncated.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

// Returns `text` with the terminal's color codes for `tone`, if the layout has colors.
std::string coloured(const std::string& text, Tone tone, const Layout& layout);

}  // namespace ckpt::cli
