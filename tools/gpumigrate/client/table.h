// SPDX-License-Identifier: Apache-2.0
// Plain text tables: columns as wide as their widest cell, two blanks between, nothing behind the last. Cells
// come from other machines, so control characters are shown as '?'. Pure.
#pragma once

#include <string>
#include <vector>

namespace ckpt::cli {

class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Without control characters, which could change what the terminal shows.
std::string printable(std::string_view text);

}  // namespace ckpt::cli
