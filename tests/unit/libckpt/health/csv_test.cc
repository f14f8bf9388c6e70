// SPDX-License-Identifier: Apache-2.0
#include "libckpt/health/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckpt::health {
namespace {

using testing::HasSubstr;

std::string error_of(const std::string& text) {
  const auto rows = read_csv(text, "t.csv");
  return rows ? "" : rows.error().message();
}

TEST(Csv, QuotesCommentsAndLineEndsAreParsed) {
  const auto rows = read_csv("a,b\r\n# note\n\n\"x, \"\"y\"\"\",2", "t.csv");
  ASSERT_TRUE(rows.has_value());
  ASSERT_EQ(rows->size(), 2U);
  const CsvRow& row = (*rows)[1];
  EXPECT_EQ(row.line, 4U);
  EXPECT_EQ(row.fields[0].text, "x, \"y\"");
  EXPECT_EQ(row.fields[1].text, "2");
  EXPECT_EQ(row.fields[1].column, 12U);
}

TEST(Csv, ErrorsNameLineAndColumn) {
  EXPECT_THAT(error_of("a,b\n1,\"x"), HasSubstr("t.csv:2:3:"));
  EXPECT_THAT(error_of("a,b\n1,x\"y"), HasSubstr("t.csv:2:4:"));
  EXPECT_THAT(error_of("\"a\"b"), HasSubstr("t.csv:1:4:"));
  EXPECT_THAT(error_of(std::string("a\nb\0c", 5)), HasSubstr("t.csv:2:2:"));
}

TEST(Csv, CsvSizeIsBounded) {
  EXPECT_THAT(error_of(std::string(kMaxCsvBytes + 1, 'a')), HasSubstr("bytes"));
  EXPECT_THAT(error_of(std::string(kMaxCsvFields, ',')), HasSubstr("too many fields"));
  std::string lines;
  for (std::size_t i = 0; i <= kMaxCsvRows; ++i) lines += "a\n";
  EXPECT_THAT(error_of(lines), HasSubstr("too many lines"));
}

}  // namespace
}  // namespace ckpt::health
