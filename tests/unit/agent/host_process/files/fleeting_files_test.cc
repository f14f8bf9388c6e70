// SPDX-License-Identifier: Apache-2.0
// Tests that the list has no file that was open for a moment only.
#include "agent/host_process/files/fleeting_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <thread>

#include "agent/host_process/file_list.h"
#include "tests/unit/agent/support/child.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent::host {
namespace {

using std::chrono::steady_clock;
using ::testing::Contains;
using ::testing::Not;

// A time that is early enough for a file that must not count as lasting, even if the test is slow to start.
constexpr auto kSoon = kLasts / 8;

class FleetingFiles : public ::testing::Test {
 protected:
  FleetingFiles() { make(); }

  void make() const { std::ofstream(path_) << "AAAA"; }
  void unlink() const { ::unlink(path_.c_str()); }

  // Checks whether the file is left out of a list. `change` runs soon after the first scan of the file. The
  // list has another file that stays, so the scans continue after the file is gone.
  bool is_left_out(const std::function<void()>& change) const {
    std::ofstream(folder_ / "stays") << "AAAA";
    std::vector<FileFact> facts(2);
    facts.front().path = folder_ / "stays";
    facts.back().path = path_;
    std::thread changer([&change] {
      std::this_thread::sleep_for(kSoon);
      change();
    });
    const bool says_so = leave_out_fleeting(facts);
    changer.join();
    EXPECT_EQ(says_so, facts.size() == 1);
    return facts.size() == 1 && facts.front().path != path_;
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_ / "journal";
};

TEST_F(FleetingFiles, FileThatIsRemovedSoonAfterItWasMadeIsLeftOut) {
  EXPECT_TRUE(is_left_out([this] { unlink(); }));
}

TEST_F(FleetingFiles, FileThatComesBackUnderItsNameIsLeftOut) {
  EXPECT_TRUE(is_left_out([this] {
    unlink();
    std::this_thread::sleep_for(2 * kSoon);
    make();
  }));
}

TEST_F(FleetingFiles, FileThatStaysIsListed) {
  EXPECT_FALSE(is_left_out([] {}));
}

TEST_F(FleetingFiles, OlderFilesAreNotAwaited) {
  std::this_thread::sleep_for(kLasts);
  std::vector<FileFact> facts(1);
  facts.front().path = path_;
  const auto began = steady_clock::now();
  EXPECT_FALSE(leave_out_fleeting(facts));
  EXPECT_LT(steady_clock::now() - began, kLasts / 2);
  EXPECT_EQ(facts.size(), 1u);
}

TEST_F(FleetingFiles, ListHasTheNameThatAnOpenFileGotMeanwhile) {
  const Child child([this] { (void)::open(path_.c_str(), O_RDONLY); });
  const std::string name = folder_ / "database";
  std::thread renamer([this, &name] {
    std::this_thread::sleep_for(kSoon);
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
