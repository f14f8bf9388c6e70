// SPDX-License-Identifier: Apache-2.0
// Tests the commands backup, backup show and backup restore. tests/unit/libckpt/store/backup tests the file's
// format and the folder's content.
#include <sys/file.h>

#include "tests/unit/libckpt/store/backup/folder.h"
#include "tests/unit/tools/gpumigrate/run_command.h"

namespace ckpt::cli {
namespace {

class BackupCommands : public backup::BackupTest {
 protected:
  BackupCommands() {
    fill_home("a");
    make_backup();
  }
  // Returns a coordinator whose backup is the file `copy`.
  static FakeCoordinator coordinator_with(const std::string& copy) {
    return FakeCoordinator([copy](const FakeRequest&) { return json(Json{{"file", copy}}.dump()); });
  }
  [[nodiscard]] std::string taken() const { return file() + "-taken"; }
};

TEST_F(BackupCommands, BackupTakesTheCopyOfTheCoordinatorAndRemovesTheCopy) {
  const std::string whole = text_of(file());
  const FakeCoordinator coordinator = coordinator_with(file());
  const Ended ended = run(coordinator.home(), {"backup", taken()});
  EXPECT_EQ(ended.code, kDone) << ended.err;
  EXPECT_TRUE(
      has(ended.out, "cluster c0ffee, made 1970-01-01T00:00:00Z by gpumigrate 1.2: 3 jobs, 4 migrations"))
      << ended.out;
  EXPECT_EQ(coordinator.requests().at(0).target, "/v1/backup");
  EXPECT_TRUE(text_of(taken()) == whole);
  EXPECT_FALSE(std::filesystem::exists(file()));
}

TEST_F(BackupCommands, ADamagedCopyIsRefused) {
  std::string damaged = text_of(file());
  damaged[damaged.size() / 2] ^= 1;
  put(file(), damaged);
  const FakeCoordinator coordinator = coordinator_with(file());
  EXPECT_EQ(run(coordinator.home(), {"backup", taken()}).code, kRefused);
  EXPECT_FALSE(std::filesystem::exists(taken()));
}

TEST_F(BackupCommands, BackupWithoutAFileIsRefusedWithoutARequest) {
  const FakeCoordinator coordinator = coordinator_with(file());
  EXPECT_EQ(run(coordinator.home(), {"backup"}).code, kUsage);
  EXPECT_TRUE(coordinator.requests().empty());
}

TEST_F(BackupCommands, ShowListsTheContentWithoutACoordinator) {
  const Ended ended = run("/nowhere", {"backup", "show", file(), "-o", "json"});
  EXPECT_EQ(ended.code, kDone) << ended.err;
  const Json shown = Json::parse(ended.out);
  EXPECT_EQ(shown.at("cluster"), "c0ffee");
  EXPECT_EQ(shown.at("jobs"), 3);
  EXPECT_EQ(shown.at("parts").at("journal"), backup::kBlockBytes);
  put(file(), "no backup");
  EXPECT_EQ(run("/nowhere", {"backup", "show", file()}).code, kRefused);
}

TEST_F(BackupCommands, RestoreKeepsTheOldStoreAsideAndNamesTheNextStep) {
  fill_home("b");
  const Ended refused = run("/nowhere", {"backup", "restore", file(), "--into", home()});
  EXPECT_EQ(refused.code, kRefused);
  EXPECT_TRUE(has(refused.err, "--replace")) << refused.err;
  const Ended ended = run("/nowhere", {"backup", "restore", file(), "--into", home(), "--replace"});
  EXPECT_EQ(ended.code, kDone) << ended.err;
  EXPECT_TRUE(has(ended.out, home() + "/before-restore-")) << ended.out;
  EXPECT_TRUE(has(ended.err, "gpumigrate local up")) << ended.err;
  EXPECT_TRUE(text_of(path(backup::kStore)) == part_text(0, "a"));
}

TEST_F(BackupCommands, RestoreIsRefusedWhileACoordinatorHoldsTheFolder) {
  const UniqueFd held(::open(path(backup::kJournal).c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(held.get(), LOCK_EX | LOCK_NB), 0);
  const Ended ended = run("/nowhere", {"backup", "restore", file(), "--into", home(), "--replace"});
  EXPECT_EQ(ended.code, kRefused);
  EXPECT_TRUE(has(ended.err, "A coordinator runs")) << ended.err;
}

}  // namespace
}  // namespace ckpt::cli
