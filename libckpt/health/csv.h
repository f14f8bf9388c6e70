// SPDX-License-Identifier: Apache-2.0
// Comma-separated values in the form of the health tables: one record per line, without line breaks in a
// field. Fields may be quoted ("" is a quote inside). Lines that begin with '#' and empty lines are skipped.
// The limits are kMaxCsvBytes, kMaxCsvRows, kMaxCsvFields.
// Threads: pure functions. Errors: kInvalidArgument with source, line and column (both from 1; the column of
// the field's first character).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::health {

inline constexpr std::size_t kMaxCsvBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxCsvRows = 4096;
inline constexpr std::size_t kMaxCsvFields = 32;

struct CsvField {
  std::string text;
  std::size_t column = 0;
};

struct CsvRow {
  std::size_t line = 0;
  std::vector<CsvField> fields;
};

// Returns an error with the text "source:line:column: what".
[[nodiscard]] Error csv_error(std::string_view source, std::size_t line, std::size_t column,
                              const std::string& what);

// Returns the rows, beginning with the header.
[[nodiscard]] Result<std::vector<CsvRow>> read_csv(std::string_view text, std::string_view source);

}  // namespace ckpt::health
