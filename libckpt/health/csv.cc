// SPDX-License-Identifier: Apache-2.0
#include "libckpt/health/csv.h"

#include <algorithm>

namespace ckpt::health {
namespace {

class LineReader {
 public:
  LineReader(std::string_view line, std::size_t number, std::string_view source)
      : line_(line), number_(number), source_(source) {}

  Result<CsvRow> read() {
    CsvRow row;
    row.line = number_;
    for (;;) {
      if (row.fields.size() == kMaxCsvFields) return error(at_, "too many fields in a line");
      CKPT_TRY(field, read_field());
      row.fields.push_back(std::move(field));
      if (at_ == line_.size()) return row;
      ++at_;  // skips the comma
    }
  }

 private:
  Result<CsvField> read_field() {
    CsvField field;
    field.column = at_ + 1;
    if (at_ < line_.size() && line_[at_] == '"') return read_quoted(std::move(field));
    const std::size_t end = std::min(line_.find(',', at_), line_.size());
    field.text = std::string(line_.substr(at_, end - at_));
    at_ = end;
    if (const auto quote = field.text.find('"'); quote != std::string::npos)
      return error(field.column + quote - 1, "a quote inside a field that does not begin with a quote");
    return field;
  }

  Result<CsvField> read_quoted(CsvField field) {
    const std::size_t begin = at_++;
    for (;;) {
      if (at_ == line_.size()) return error(begin, "a quoted field does not end on its line");
      const char c = line_[at_++];
      if (c != '"') {
        field.text += c;
      } else if (at_ < line_.size() && line_[at_] == '"') {
        field.text += line_[at_++];
      } else {
        break;
      }
    }
    if (at_ < line_.size() && line_[at_] != ',') return error(at_, "expected a comma after a quoted field");
    return field;
  }

  Error error(std::size_t at, const std::string& what) const {
    return csv_error(source_, number_, at + 1, what);
  }

  std::string_view line_;
  std::size_t number_;
  std::string_view source_;
  std::size_t at_ = 0;
};

}  // namespace

Error csv_error(std::string_view source, std::size_t line, std::size_t column, const std::string& what) {
  return Error(ErrorCode::kInvalidArgument,
               std::string(source) + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + what);
}

Result<std::vector<CsvRow>> read_csv(std::string_view text, std::string_view source) {
  if (text.size() > kMaxCsvBytes)
    return Error(ErrorCode::kInvalidArgument, std::string(source) + ": more than " +
                                                  std::to_string(kMaxCsvBytes) +
                                                  " bytes are too long for a health table");
  std::vector<CsvRow> rows;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (const auto zero = line.find('\0'); zero != std::string_view::npos)
      return csv_error(source, number, zero + 1, "a zero byte");
    if (line.empty() || line.front() == '#') continue;
    if (rows.size() == kMaxCsvRows) return csv_error(source, number, 1, "too many lines");
    LineReader reader(line, number, source);
    CKPT_TRY(row, reader.read());
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace ckpt::health
