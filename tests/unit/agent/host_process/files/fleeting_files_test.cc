// SPDX-License-Identifier: Apache-2.0
// Tests that the list has no file that was open for a moment only.
#include "agent/host_process/files/fleeting_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <thread>

#include "agent/host_process/file_list.h"
#include "tests/unit/agent/support/child.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent::host {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class FleetingFiles : public ::testing::Test {
 protected:
  FleetingFiles() { std::ofstream(path_) << "AAAA"; }

  // Checks whether the file is in the list of a program that has it open. The file is removed `removed`
  // after the list was begun, or stays.
  bool is_listed(std::optional<milliseconds> removed) {
    const Child child([this] { (void)::open(path_.c_str(), O_RDONLY); });
    std::thread remover;
    if (removed)
      remover = std::thread([this, removed] {
        std::this_thread::sleep_for(*removed);
        ::unlink(path_.c_str());
      });
    const auto list = collect_files(child.pid(), FileRules());
    if (remover.joinable()) remover.join();
    EXPECT_TRUE(list.has_value()) << list.error().message();
    return list && std::any_of(list->files.begin(), list->files.end(),
                               [this](const FileFact& fact) { return fact.path == path_; });
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_ / "journal";
};

TEST_F(FleetingFiles, FileThatIsRemovedSoonAfterItWasMadeIsNotListed) {
  EXPECT_FALSE(is_listed(kLasts / 2));
}

TEST_F(FleetingFiles, FileThatStaysIsListed) {
  EXPECT_TRUE(is_listed(std::nullopt));
}

TEST_F(FleetingFiles, OlderFilesAreNotAwaited) {
  std::this_thread::sleep_for(kLasts);
  std::vector<FileFact> facts(1);
  facts.front().path = path_;
  const auto began = steady_clock::now();
  leave_out_fleeting(facts);
  EXPECT_LT(steady_clock::now() - began, kLasts / 2);
  EXPECT_EQ(facts.size(), 1u);
}

}  // namespace
}  // namespace ckpt::agent::host
