// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/backup/restore.h"

#include <sys/file.h>

#include "tests/unit/libckpt/store/backup/folder.h"

namespace ckpt::backup {
namespace {

class RestoreTest : public BackupTest {
 protected:
  RestoreTest() {
    fill_home("old");
    make_backup();
  }
  Result<Restored> run(bool replace) {
    CKPT_TRY(file, BackupFile::open(file_path()));
    return restore(file, home(), replace, "before-1");
  }
  [[nodiscard]] std::string file_path() const { return file(); }
  void clear_home() const {
    std::filesystem::remove_all(home());
    std::filesystem::create_directory(home());
  }
  void expect_home_has(const std::string& mark) const {
    for (std::size_t i = 0; i < kParts.size(); ++i)
      EXPECT_TRUE(text_of(path(kParts[i])) == part_text(i, mark)) << kParts[i];
  }
  [[nodiscard]] std::size_t files_in_home() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(home()), {}));
  }
};

TEST_F(RestoreTest, RestoreIntoAnEmptyFolderWritesAllParts) {
  clear_home();
  auto restored = run(false);
  ASSERT_TRUE(restored.has_value()) << restored.error().to_string();
  EXPECT_EQ(restored->aside, "");
  expect_home_has("old");
  EXPECT_EQ(files_in_home(), kParts.size());
  for (const std::string_view part : kParts)
    EXPECT_EQ(std::filesystem::status(path(part)).permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(RestoreTest, RestoreCreatesAMissingFolder) {
  std::filesystem::remove_all(home());
  ASSERT_TRUE(run(false).has_value());
  expect_home_has("old");
}

TEST_F(RestoreTest, PartMissingInTheBackupIsNotRestored) {
  fill_home("old");
  put(path("ca.key"), "");
  make_backup();
  clear_home();
  ASSERT_TRUE(run(false).has_value());
  EXPECT_TRUE(std::filesystem::exists(path("ca.pem")));
  EXPECT_FALSE(std::filesystem::exists(path("ca.key")));
  EXPECT_EQ(files_in_home(), kParts.size() - 1);
}

TEST_F(RestoreTest, RestoreOverAStoreIsRefusedWithoutChanges) {
  fill_home("new");
  const auto restored = run(false);
  ASSERT_FALSE(restored.has_value());
  EXPECT_EQ(restored.error().code(), ErrorCode::kRefused);
  expect_home_has("new");
  EXPECT_EQ(files_in_home(), kParts.size());
}

TEST_F(RestoreTest, RestoreInPlaceKeepsTheOldStoreAside) {
  fill_home("new");
  put(path("state.db-wal"), "log");
  auto restored = run(true);
  ASSERT_TRUE(restored.has_value()) << restored.error().to_string();
  const std::string aside = restored->aside;
  EXPECT_EQ(aside, path("before-1"));
  expect_home_has("old");
  EXPECT_FALSE(std::filesystem::exists(path("state.db-wal")));
  EXPECT_EQ(text_of(aside + "/state.db-wal"), "log");
  for (std::size_t i = 0; i < kParts.size(); ++i)
    EXPECT_TRUE(text_of(aside + "/" + std::string(kParts[i])) == part_text(i, "new"));
}

TEST_F(RestoreTest, RestoreIsRefusedWhileACoordinatorLocksTheFolder) {
  fill_home("new");
  const UniqueFd coordinator(::open(path(kJournal).c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(coordinator.get(), LOCK_EX | LOCK_NB), 0);
  const auto restored = run(true);
  ASSERT_FALSE(restored.has_value());
  EXPECT_EQ(restored.error().code(), ErrorCode::kRefused);
  EXPECT_NE(restored.error().message().find("A coordinator runs"), std::string::npos);
  expect_home_has("new");
}

TEST_F(RestoreTest, ADamagedBackupChangesNoFile) {
  std::string bytes = text_of(file());
  bytes[bytes.size() - 10] ^= 1;  // changes a byte of the last part
  put(file(), bytes);
  fill_home("new");
  EXPECT_FALSE(run(true).has_value());
  expect_home_has("new");
  EXPECT_EQ(files_in_home(), kParts.size());
}

}  // namespace
}  // namespace ckpt::backup
