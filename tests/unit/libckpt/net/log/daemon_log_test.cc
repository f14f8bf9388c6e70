// SPDX-License-Identifier: Apache-2.0
// Tests a daemon's log: each entry stays one line, and the files stay bounded.
#include "libckpt/net/log/daemon_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "libckpt/base/private_text.h"
#include "libckpt/net/control/log.h"

namespace ckpt::logging {
namespace {

class DaemonLogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/logXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/daemon.log";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string text(const std::string& ending = "") const {
    const auto read = read_file(path_ + ending, std::size_t{1} << 20);
    return read ? *read : std::string();
  }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  std::string folder_;
  std::string path_;
};

TEST(CleanLine, MessageIsWrittenOnOneLine) {
  EXPECT_EQ(clean_line("dropped \"a\n2026-01-01T00:00:00 info forged\""),
            "dropped \"a\\n2026-01-01T00:00:00 info forged\"");
  EXPECT_EQ(clean_line("a\r\x1b[2Jb\x7f\t"), "a\\x0d\\x1b[2Jb\\x7f\\x09");
  EXPECT_EQ(clean_line(std::string("a\0b", 3)), "a\\x00b");
}

TEST(CleanLine, LineBreaksAndBidirectionalCharactersAreEscaped) {
  EXPECT_EQ(clean_line("a\u2028b\u202ec\u2066d"), "a\\xe2\\x80\\xa8b\\xe2\\x80\\xaec\\xe2\\x81\\xa6d");
  EXPECT_EQ(clean_line("a\xc2\x85z"), "a\\xc2\\x85z");  // C1 control character: next line
  EXPECT_EQ(clean_line("\xff\xfe \xc3"), "\\xff\\xfe \\xc3");
  EXPECT_EQ(clean_line("häuser \u65e5\u672c \U0001F600"), "häuser \u65e5\u672c \U0001F600");
}

TEST(CleanLine, PrivateMarksAreRemovedAndLengthIsBounded) {
  EXPECT_EQ(clean_line("said " + mark_private(PrivatePart::kOutput, "x")), "said x");
  EXPECT_LE(clean_line(std::string(1 << 20, 'x')).size(), kLongestLine + 3);
  EXPECT_LE(clean_line(std::string(1 << 20, '\n')).size(), kLongestLine + 5);
}

TEST_F(DaemonLogTest, PeerNamesCannotForgeALogLine) {
  const auto before = spdlog::default_logger();
  DaemonLog log;
  log.name = "coordinator";
  log.file = path_;
  ASSERT_TRUE(open_log(log));
  const std::string name = "x\n2026-01-01T00:00:00.000+0000 info coordinator all is well";
  spdlog::warn("\"{}\" is no name for a node", name);
  spdlog::set_default_logger(before);
  const std::string written = text();
  EXPECT_EQ(std::count(written.begin(), written.end(), '\n'), 1) << written;
  EXPECT_NE(written.find(" warning coordinator \"x\\n2026"), std::string::npos) << written;
}

TEST_F(DaemonLogTest, FileIsRotatedAtItsSizeLimitAndOldFilesAreRemoved) {
  LogLimits limits;
  limits.bytes = 100;
  limits.retained = 2;
  LogFile file = std::move(LogFile::open(path_, limits).value());
  for (int i = 0; i < 100; ++i) file.write("line " + std::to_string(1000 + i) + "\n");
  EXPECT_EQ(files(), 3U);
  EXPECT_LE(text().size(), 100U);
  EXPECT_TRUE(text().ends_with("line 1099\n"));
  EXPECT_FALSE(text(".1").empty());
  EXPECT_FALSE(text(".2").empty());
  // The last lines are stored in order across the files.
  const std::string all = text(".2") + text(".1") + text();
  EXPECT_NE(all.find("line 1098\nline 1099\n"), std::string::npos) << all;
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
}

TEST_F(DaemonLogTest, StandardErrorFileIsAlsoBounded) {
  const UniqueFd retained(::dup(STDERR_FILENO));
  const UniqueFd target(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  ASSERT_GE(::dup2(target.get(), STDERR_FILENO), 0);
  LogLimits limits;
  limits.bytes = 64;
  limits.retained = 1;
  LogFile file = LogFile::of_stderr(limits);
  for (int i = 0; i < 50; ++i) file.write("line " + std::to_string(1000 + i) + "\n");
  const bool by_hand = ::write(STDERR_FILENO, "by hand\n", 8) == 8;
  ASSERT_GE(::dup2(retained.get(), STDERR_FILENO), 0);
  EXPECT_TRUE(by_hand);
  EXPECT_EQ(files(), 2U);
  EXPECT_TRUE(text().ends_with("line 1049\nby hand\n")) << text();
}

TEST_F(DaemonLogTest, TwoProcessesThatShareAFileLoseNoLine) {
  LogLimits limits;
  limits.bytes = 64;
  limits.retained = 3;
  LogFile one = std::move(LogFile::open(path_, limits).value());
  LogFile other = std::move(LogFile::open(path_, limits).value());
  for (int i = 0; i < 10; ++i) {
    one.write("one " + std::to_string(i) + "\n");
    other.write("other " + std::to_string(i) + "\n");
  }
  const std::string all = text(".3") + text(".2") + text(".1") + text();
  for (int i = 0; i < 10; ++i) {
    EXPECT_NE(all.find("one " + std::to_string(i) + "\n"), std::string::npos) << all;
    EXPECT_NE(all.find("other " + std::to_string(i) + "\n"), std::string::npos) << all;
  }
}

}  // namespace
}  // namespace ckpt::logging
