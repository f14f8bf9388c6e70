// SPDX-License-Identifier: Apache-2.0
// Tests that the list has no file that was open for a moment only.
#include "agent/host_process/files/fleeting_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <thread>

#include "agent/host_process/file_list.h"
#include "tests/unit/agent/support/child.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent::host {
namespace {

using ::testing::Contains;
using ::testing::Not;

class FleetingFiles : public ::testing::Test {
 protected:
  FleetingFiles() { make(); }

  void make() const { std::ofstream(path_) << "AAAA"; }
  void unlink() const { ::unlink(path_.c_str()); }

  // Checks whether the file is left out of a list. `change` runs after each check with the check's number. The
  // list has another file that stays, so the checks continue after the file is gone.
  bool is_left_out(std::chrono::milliseconds lasts, const std::function<void(int)>& change) {
    std::ofstream(folder_ / "stays") << "AAAA";
    std::vector<FileFact> facts(2);
    facts.front().path = folder_ / "stays";
    facts.back().path = path_;
    Glances glances;
    glances.lasts = lasts;
    glances.wait = [this, &change] {
      change(++checks_);
      if (checks_ == kEnough) ::unlink((folder_ / "stays").c_str());
    };
    const bool is_changed = leave_out_fleeting(facts, glances);
    EXPECT_EQ(is_changed, facts.size() < 2);
    return std::ranges::none_of(facts, [this](const FileFact& fact) { return fact.path == path_; });
  }

  static constexpr int kEnough = 5;  // the number of checks that a test of a young file makes
  static constexpr std::chrono::hours kYoung{1};
  TemporaryFolder folder_;
  const std::string path_ = folder_ / "journal";
  int checks_ = 0;
};

TEST_F(FleetingFiles, FileThatIsRemovedSoonAfterItWasMadeIsLeftOut) {
  EXPECT_TRUE(is_left_out(kYoung, [this](int check) {
    if (check == 1) unlink();
  }));
  EXPECT_EQ(checks_, kEnough);
}

TEST_F(FleetingFiles, FileThatComesBackUnderItsNameIsLeftOut) {
  EXPECT_TRUE(is_left_out(kYoung, [this](int check) {
    if (check == 1) unlink();
    if (check == 2) make();
  }));
}

TEST_F(FleetingFiles, FileThatStaysIsListedOnceItIsOldEnough) {
  EXPECT_FALSE(is_left_out(std::chrono::milliseconds(50), [](int) {}));
}

TEST_F(FleetingFiles, OlderFilesAreNotAwaited) {
  constexpr std::chrono::milliseconds kOld(20);
  std::this_thread::sleep_for(2 * kOld);
  std::vector<FileFact> facts(1);
  facts.front().path = path_;
  Glances glances;
  glances.lasts = kOld;
  glances.wait = [this] { ++checks_; };
  EXPECT_FALSE(leave_out_fleeting(facts, glances));
  EXPECT_EQ(checks_, 0);
}

TEST_F(FleetingFiles, ListHasTheNameThatAnOpenFileGotMeanwhile) {
  const Child child([this] { (void)::open(path_.c_str(), O_RDONLY); });
  const std::string name = folder_ / "database";
  std::thread renamer([this, &name] {
    std::this_thread::sleep_for(kLasts / 8);
    (void)std::rename(path_.c_str(), name.c_str());
  });
  const auto list = collect_files(child.pid(), FileRules());
  renamer.join();
  ASSERT_TRUE(list.has_value()) << list.error().message();
  std::vector<std::string> paths;
  for (const FileFact& fact : list->files) paths.push_back(fact.path);
  EXPECT_THAT(paths, Contains(name));
  EXPECT_THAT(paths, Not(Contains(path_)));
}

}  // namespace
}  // namespace ckpt::agent::host
