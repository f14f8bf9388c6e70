// SPDX-License-Identifier: Apache-2.0
#include "agent/jobs/log_limit.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "libckpt/base/fd.h"

namespace ckpt::agent {
namespace {

constexpr std::uint64_t kLimit = std::uint64_t{1} << 20;

class LogLimitTest : public ::testing::Test {
 protected:
  LogLimitTest() {
    std::string pattern = "/var/tmp/log-limit-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/out.log";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Writes lines of 100 bytes, as a program appends them.
  void write_lines(std::uint64_t count) {
    std::ofstream log(path_, std::ios::app);
    for (std::uint64_t i = 0; i < count; ++i) log << std::string(99, static_cast<char>('a' + i % 26)) << '\n';
  }
  [[nodiscard]] std::uint64_t held() const {
    struct stat facts {};
    EXPECT_EQ(::stat(path_.c_str(), &facts), 0);
    return static_cast<std::uint64_t>(facts.st_blocks) * 512;
  }
  [[nodiscard]] std::uint64_t size() const { return std::filesystem::file_size(path_); }

  std::string folder_;
  std::string path_;
};

TEST_F(LogLimitTest, OldBytesAreFreedAndOffsetsAreUnchanged) {
  write_lines(50'000);
  const auto freed = free_old_output(path_, kLimit);
  ASSERT_TRUE(freed.has_value()) << freed.error().to_string();
  EXPECT_GT(*freed, 3U << 20);
  EXPECT_EQ(size(), 5'000'000U);
  EXPECT_GE(held(), kLimit);
  EXPECT_LE(held(), kLimit + 2 * 4096);
  write_lines(1);
  EXPECT_EQ(size(), 5'000'100U);
  const std::uint64_t first = first_kept_byte(path_, 0);
  EXPECT_EQ(first % 100, 0U);
  EXPECT_LE(first, 5'000'000 - kLimit + 100);
  EXPECT_GT(first, 5'000'000 - kLimit - 4096);
  std::ifstream log(path_);
  log.seekg(static_cast<std::streamoff>(first));
  std::string line;
  std::getline(log, line);
  EXPECT_EQ(line, std::string(99, static_cast<char>('a' + first / 100 % 26)));
}

TEST_F(LogLimitTest, AnOffsetBehindTheFreedRangeIsUnchanged) {
  write_lines(50'000);
  ASSERT_TRUE(free_old_output(path_, kLimit).has_value());
  EXPECT_EQ(first_kept_byte(path_, 4'500'042), 4'500'042U);
  EXPECT_EQ(first_kept_byte(path_, 5'000'000), 5'000'000U);
  EXPECT_EQ(first_kept_byte(path_, 9'000'000), 9'000'000U);
  EXPECT_EQ(first_kept_byte(folder_ + "/none", 7), 7U);
}

TEST_F(LogLimitTest, ALogSlightlyAboveTheLimitIsNotTrimmed) {
  write_lines(11'000);
  EXPECT_EQ(*free_old_output(path_, kLimit), 0U);
  EXPECT_EQ(*free_old_output(path_, 0), 0U);
  EXPECT_EQ(*free_old_output(folder_ + "/none", kLimit), 0U);
  EXPECT_EQ(first_kept_byte(path_, 0), 0U);
}

TEST_F(LogLimitTest, AFileWithAnotherHardLinkIsNotTrimmed) {
  write_lines(50'000);
  const std::uint64_t before = held();
  std::filesystem::create_hard_link(path_, folder_ + "/another");
  EXPECT_EQ(*free_old_output(path_, kLimit), 0U);
  EXPECT_EQ(held(), before);
  std::filesystem::remove(path_);
  std::filesystem::create_symlink(folder_ + "/another", path_);
  EXPECT_EQ(*free_old_output(path_, kLimit), 0U);
  EXPECT_EQ(std::filesystem::file_size(folder_ + "/another"), 5'000'000U);
}

TEST_F(LogLimitTest, AFileOfAnotherUserIsNotTrimmed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  write_lines(50'000);
  const std::uint64_t before = held();
  ASSERT_EQ(::chown(path_.c_str(), 65534, 65534), 0);
  EXPECT_EQ(*free_old_output(path_, kLimit), 0U);
  EXPECT_EQ(held(), before);
}

}  // namespace
}  // namespace ckpt::agent
