// SPDX-License-Identifier: Apache-2.0
#include "agent/jobs/log_times.h"

#include <gtest/gtest.h>

namespace ckpt::agent {
namespace {

constexpr std::int64_t kDayMs = std::int64_t{86'400} * 1000;
// Four bytes were recorded on the second day of 1970, six more a second later.
const std::vector<LogTime> kTimes = {{4, kDayMs}, {10, kDayMs + 1000}};
const std::string kFirst = "1970-01-02T00:00:00Z ";
const std::string kSecond = "1970-01-02T00:00:01Z ";

TEST(LogTimes, EachLineHasTheTimeOfItsFirstByte) {
  std::uint64_t covers = 0;
  EXPECT_EQ(with_times("one\ntwo\nth", 0, true, kTimes, 1000, covers),
            kFirst + "one\n" + kSecond + "two\n" + kSecond + "th");
  EXPECT_EQ(covers, 10U);
  EXPECT_EQ(with_times("wo\nth", 5, false, kTimes, 1000, covers), "wo\n" + kSecond + "th");
  EXPECT_EQ(with_times("one\n", 0, true, {}, 1000, covers), "- one\n");
}

TEST(LogTimes, LineThatDoesNotFitIsLeftForTheNextCall) {
  std::uint64_t covers = 0;
  EXPECT_EQ(with_times("one\ntwo\n", 0, true, kTimes, 30, covers), kFirst + "one\n");
  EXPECT_EQ(covers, 4U);
  const std::string part = with_times("a line that is too long", 0, true, kTimes, 25, covers);
  EXPECT_EQ(part, kFirst + "a li");
  EXPECT_EQ(covers, 4U);
}

TEST(LogTimes, SinceOptionOmitsEarlierOutput) {
  EXPECT_EQ(first_byte_since(kTimes, kDayMs), 0U);
  EXPECT_EQ(first_byte_since(kTimes, kDayMs + 1), 4U);
  EXPECT_EQ(first_byte_since(kTimes, kDayMs + 1001), 10U);
  EXPECT_EQ(first_byte_since({}, kDayMs), 0U);
}

}  // namespace
}  // namespace ckpt::agent
