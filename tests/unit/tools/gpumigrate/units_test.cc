// SPDX-License-Identifier: Apache-2.0
#include "tools/common/units.h"

#include <gtest/gtest.h>

namespace ckpt::tools {
namespace {

TEST(Units, SizesAreParsed) {
  EXPECT_EQ(*parse_size("4096"), 4096u);
  EXPECT_EQ(*parse_size("4096B"), 4096u);
  EXPECT_EQ(*parse_size("256KiB"), 256u << 10);
  EXPECT_EQ(*parse_size("1.5GiB"), 3ull << 29);
  EXPECT_EQ(*parse_size("2GB"), 2'000'000'000u);
  EXPECT_EQ(*parse_size("1TiB"), 1ull << 40);
}

TEST(Units, MalformedSizesAreRefused) {
  for (const char* text :
       {"", "GiB", "-1GiB", "+1GiB", "1 GiB", "1GiB ", "1gib", "1G", "1e3", "0x10", "1.GiB", ".5GiB",
        "1.2.3KiB", "0.5B", "99999999999999TiB", "inf", "nan", "12GiBx"}) {
    const auto size = parse_size(text);
    ASSERT_FALSE(size.has_value()) << text;
    EXPECT_EQ(size.error().code(), ErrorCode::kInvalidArgument);
  }
}

TEST(Units, RatesAreParsed) {
  EXPECT_EQ(*parse_rate("10GiB/s"), 10ull << 30);
  for (const char* text : {"10GiB", "10GiB/m", "0GiB/s", "/s"})
    EXPECT_FALSE(parse_rate(text).has_value()) << text;
}

TEST(Units, DurationsAreParsed) {
  EXPECT_EQ(*parse_duration_ns("200ms"), 200'000'000);
  EXPECT_EQ(*parse_duration_ns("1.5s"), 1'500'000'000);
  EXPECT_EQ(*parse_duration_ns("10m"), 600'000'000'000);
  EXPECT_EQ(*parse_duration_ns("2h"), 7'200'000'000'000);
  EXPECT_EQ(*parse_duration_ns("50us"), 50'000);
  EXPECT_EQ(*parse_duration_ns("0"), 0);
  for (const char* text : {"", "10", "ms", "-1s", "1 s", "1sec", "1S", "9999999999999h", "1s2"}) {
    EXPECT_FALSE(parse_duration_ns(text).has_value()) << text;
  }
}

TEST(Units, SharesAreParsed) {
  EXPECT_DOUBLE_EQ(*parse_share("2%"), 0.02);
  EXPECT_DOUBLE_EQ(*parse_share("0.5%"), 0.005);
  EXPECT_DOUBLE_EQ(*parse_share("100%"), 1);
  for (const char* text : {"2", "%", "101%", "-1%", "2 %"})
    EXPECT_FALSE(parse_share(text).has_value()) << text;
}

TEST(Units, ErrorsNameTheTextAndAnExample) {
  const std::string message = parse_size("12Gb").error().message();
  EXPECT_NE(message.find("\"12Gb\""), std::string::npos) << message;
  EXPECT_NE(message.find("2GiB"), std::string::npos) << message;
}

TEST(Units, SizesAndTimesAreFormatted) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(8.0 * 1024 * 1024 * 1024), "8.00 GiB");
  EXPECT_EQ(format_milliseconds(3.456), "3.46 ms");
  EXPECT_EQ(format_milliseconds(123.4), "123.4 ms");
  EXPECT_EQ(format_milliseconds(6'000), "6.0 s");
  EXPECT_EQ(format_milliseconds(250'000), "4m10s");
  EXPECT_EQ(format_milliseconds(7'260'000), "2h01m");
}

}  // namespace
}  // namespace ckpt::tools
