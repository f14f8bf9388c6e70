// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/files/kept_logs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent::host {
namespace {

namespace fs = std::filesystem;

class KeptLogs : public ::testing::Test {
 protected:
  void write(const std::string& text) { std::ofstream(log_) << text; }
  std::size_t count() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  TemporaryFolder home_;
  std::string folder_ = home_.path() + "/criu-logs";
  std::string log_ = home_.path() + "/criu-dump.log";
};

TEST_F(KeptLogs, KeptLogOutlivesItsFolderAndContainsTheEndOfALongLog) {
  write(std::string(2 * kKeptLogBytes, 'x') + "Error (the cause)\n");
  const auto kept = save_log(folder_, log_, "j1-m7");
  fs::remove(log_);
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(fs::file_size(*kept), kKeptLogBytes);
  std::ifstream in(*kept);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  EXPECT_TRUE(text.ends_with("Error (the cause)\n"));
  EXPECT_EQ(fs::status(folder_).permissions(), fs::perms::owner_all);
}

TEST_F(KeptLogs, MissingLogIsNotKept) {
  EXPECT_FALSE(save_log(folder_, log_, "j1-m7").has_value());
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(KeptLogs, NewestLogsAreKeptAndOldLogsAreRemoved) {
  write("one line\n");
  std::string newest;
  for (std::size_t number = 0; number < kMaxKeptLogs + 5; ++number) {
    newest = save_log(folder_, log_, "j1-m" + std::to_string(number)).value();
    fs::last_write_time(newest, fs::file_time_type::clock::now() - std::chrono::hours(number == 20 ? 1 : 0));
  }
  EXPECT_EQ(count(), kMaxKeptLogs);
  EXPECT_TRUE(fs::exists(newest));
  fs::last_write_time(newest, fs::file_time_type::clock::now() - kKeepLogsFor - std::chrono::hours(1));
  remove_old_logs(folder_);
  EXPECT_FALSE(fs::exists(newest));
  EXPECT_EQ(count(), kMaxKeptLogs - 1);
}

}  // namespace
}  // namespace ckpt::agent::host
