// SPDX-License-Identifier: Apache-2.0
// Tests of changes to CRIU's files.img: expired timers, names, lengths. The numbers are the fields of CRIU's
// images/{fdinfo,timerfd,regfile}.proto.
#include "agent/host_process/criu_image/open_files.h"

#include <gtest/gtest.h>
#include <sys/timerfd.h>

#include "agent/host_process/criu_image/criu_records.h"

namespace ckpt::agent::host {
namespace {

constexpr std::uint32_t kFilesMagic = 0x56303138;

void put_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}
std::string number(unsigned field, std::uint64_t value) {
  std::string text;
  put_varint(text, field << 3);
  put_varint(text, value);
  return text;
}
std::string bytes(unsigned field, const std::string& value) {
  std::string text;
  put_varint(text, (field << 3) | 2);
  put_varint(text, value.size());
  return text + value;
}

struct Timer {
  std::uint64_t flags = 0, ticks = 0, seconds = 0, nanos = 0, every_seconds = 0, every_nanos = 0;
};

std::string image_of(const std::string& record) {
  std::string image;
  put_word(image, kImageMagic);
  put_word(image, kFilesMagic);
  put_record(image, record);
  return image;
}
std::string timer_image(const Timer& timer) {
  return image_of(number(1, 17) + number(2, 9) +
                  bytes(12, number(1, 9) + number(2, 0) + bytes(3, "") + number(4, 1) +
                                number(5, timer.ticks) + number(6, timer.flags) + number(7, timer.seconds) +
                                number(8, timer.nanos) + number(9, timer.every_seconds) +
                                number(10, timer.every_nanos)));
}
std::string file_image(const std::string& path, std::uint64_t flags, std::uint64_t length) {
  return image_of(number(1, 1) + number(2, 5) +
                  bytes(3, number(1, 5) + number(2, flags) + number(3, 0) + bytes(5, "") + bytes(6, path) +
                               number(8, length)));
}

std::string settled(const std::string& image, std::vector<OpenFile>* found = nullptr) {
  std::vector<OpenFile> files;
  const auto changed = with_settled_files(
      image, [](const std::string& path) { return path == "/proc/41/statm" ? "/proc/self/statm" : path; },
      files);
  EXPECT_TRUE(changed.has_value());
  if (found != nullptr) *found = files;
  return changed.has_value() ? *changed : "";
}
bool holds(const std::string& image, const std::string& part) {
  return image.find(part) != std::string::npos;
}

TEST(OpenFiles, ExpiredUnreadTimerContinuesWithItsInterval) {
  Timer timer;
  timer.ticks = 1;
  timer.every_nanos = 100'000'000;
  const std::string changed = settled(timer_image(timer));
  EXPECT_TRUE(holds(changed, number(7, 0) + number(8, 100'000'000) + number(9, 0) + number(10, 100'000'000)));
}

TEST(OpenFiles, OtherTimersAreUnchanged) {
  Timer disarmed;
  disarmed.every_nanos = 5;
  Timer once;
  once.ticks = 1;
  Timer armed;
  armed.ticks = 3;
  armed.nanos = 7;
  armed.every_seconds = 1;
  for (const Timer& timer : {disarmed, once, armed})
    EXPECT_EQ(settled(timer_image(timer)), timer_image(timer));
}

TEST(OpenFiles, AbsoluteTimerKeepsItsRemainingTime) {
  Timer timer;
  timer.flags = TFD_TIMER_ABSTIME;
  timer.nanos = 900'000'000;
  EXPECT_TRUE(holds(settled(timer_image(timer)), number(6, 0) + number(7, 0) + number(8, 900'000'000)));
  timer.flags = TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET;
  EXPECT_TRUE(
      holds(settled(timer_image(timer)), number(6, timer.flags) + number(7, 1) + number(8, 900'000'000)));
  timer.nanos = 0;  // disarmed: the timer must not expire at once
  EXPECT_TRUE(holds(settled(timer_image(timer)), number(6, 0) + number(7, 0) + number(8, 0)));
}

TEST(OpenFiles, ProcNamesAreFoundAndReplaced) {
  std::vector<OpenFile> found;
  const std::string own = settled(file_image("/proc/41/statm", 0, 0), &found);
  EXPECT_TRUE(holds(own, "/proc/self/statm"));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_FALSE(found[0].is_written);
  const std::string other = file_image("/data/log", 02001, 5);
  EXPECT_EQ(settled(other, &found), other);
  EXPECT_TRUE(found[0].is_written);
  EXPECT_EQ(found[0].path, "/data/log");
}

TEST(OpenFiles, LengthsOfSharedFilesAreRemoved) {
  const std::string image = file_image("/data/log", 2, 5);
  EXPECT_EQ(*without_lengths(image, {"/data/other"}), image);
  const auto changed = without_lengths(image, {"/data/log"});
  ASSERT_TRUE(changed.has_value());
  EXPECT_TRUE(holds(image, number(8, 5)));
  EXPECT_FALSE(holds(*changed, number(8, 5)));
  EXPECT_FALSE(without_lengths(image.substr(0, image.size() - 1), {}).has_value());
}

}  // namespace
}  // namespace ckpt::agent::host
