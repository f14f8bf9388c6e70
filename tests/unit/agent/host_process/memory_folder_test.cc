// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/memory_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace ckpt::agent::host {
namespace {

namespace fs = std::filesystem;

class MemoryFolderTest : public ::testing::Test {
 protected:
  MemoryFolderTest() {
    std::string pattern = ::testing::TempDir() + "/placeXXXXXX";
    place_ = ::mkdtemp(pattern.data());
  }
  ~MemoryFolderTest() override { fs::remove_all(place_); }
  [[nodiscard]] std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(place_), fs::directory_iterator()));
  }
  MemoryFolder make(const std::string& name) { return MemoryFolder::create(place_, name, 0).value(); }
  std::string place_;
};

TEST_F(MemoryFolderTest, ExistingEntriesOfOtherUsersDoNotPreventCreation) {
  // The entries simulate a folder of another user, which this user must not use as its own.
  fs::create_directory_symlink("/", place_ + "/gpumigrate-m1");
  std::ofstream(place_ + "/gpumigrate-m1~abcdef") << "a file";
  const MemoryFolder made = make("m1");
  struct stat info {};
  ASSERT_EQ(::lstat(made.path().c_str(), &info), 0);
  EXPECT_TRUE(S_ISDIR(info.st_mode));
  EXPECT_EQ(info.st_mode & 0777U, 0700U);
  EXPECT_EQ(entries(), 3U) << "what is not its own stays";
}

TEST_F(MemoryFolderTest, NewFolderReplacesOnlyAFolderOfTheSameName) {
  const std::string first = make("m1").keep();
  const MemoryFolder other = make("m12");
  const std::string second = make("m1").keep();
  EXPECT_FALSE(fs::exists(first));
  EXPECT_TRUE(fs::exists(second));
  EXPECT_TRUE(fs::exists(other.path()));
  remove_memory_folder(place_, "m1");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(MemoryFolderTest, RemovalMatchesFoldersByTheirOriginalNames) {
  const std::string kept = make("node-j1").keep();
  const std::string gone = make("node-j2").keep();
  remove_memory_folders(place_, "node-", [](const std::string& rest) { return rest == "j2"; });
  EXPECT_TRUE(fs::exists(kept));
  EXPECT_FALSE(fs::exists(gone));
}

}  // namespace
}  // namespace ckpt::agent::host
