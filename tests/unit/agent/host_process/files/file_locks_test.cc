// SPDX-License-Identifier: Apache-2.0
// Tests of locks that a program holds. Locks that its copy would wait for are refused by name.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <fstream>
#include <functional>

#include "agent/host_process/file_list.h"
#include "tests/unit/agent/support/child.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent::host {
namespace {

using ::testing::HasSubstr;

class FileLocks : public ::testing::Test {
 protected:
  FileLocks() { std::ofstream(path_) << "AAAA"; }

  // Returns the target's answer while a child holds the lock that `lock` takes on the open file. If
  // `elsewhere` is true, the target has its own file at that path.
  std::string answer(const std::function<void(int)>& lock, bool elsewhere = false) {
    const Child child([&] { lock(::open(path_.c_str(), O_RDWR)); });
    auto collected = collect_files(child.pid(), FileRules());
    if (!collected.has_value()) return collected.error().message();
    FileList list = *std::move(collected);
    if (elsewhere) {
      list.kernel = "another";
      std::ofstream(folder_ / "other") << "AAAA";
      EXPECT_EQ(::rename((folder_ / "other").c_str(), path_.c_str()), 0);
    }
    const auto checked = check_files(list);
    return checked.has_value() ? "" : checked.error().message();
  }

  static void lock_range(int file, int command, short type) {
    struct flock range {};
    range.l_type = type;
    range.l_whence = SEEK_SET;
    range.l_len = 2;
    (void)!::fcntl(file, command, &range);
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_ / "held";
};

TEST_F(FileLocks, LockVisibleAtTheTargetIsRefusedByName) {
  EXPECT_THAT(answer([](int file) { (void)!::flock(file, LOCK_EX); }),
              HasSubstr(path_ + " is locked for writing (flock) by process "));
  EXPECT_THAT(answer([](int file) { lock_range(file, F_SETLK, F_WRLCK); }), HasSubstr("(fcntl or lockf)"));
  EXPECT_THAT(answer([](int file) { lock_range(file, F_OFD_SETLK, F_WRLCK); }), HasSubstr("(F_OFD_SETLK)"));
}

TEST_F(FileLocks, LockInheritedByAChildIsDetected) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    ::setpgid(0, 0);
    const int null = ::open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; ++fd) ::dup2(null, fd);
    const int high = ::fcntl(ends[1], F_DUPFD_CLOEXEC, 100);
    ::close_range(3, 99, 0);
    ::close_range(101, ~0U, 0);  // descriptors that the test itself was started with
    const int file = ::open(path_.c_str(), O_RDWR);
    (void)!::flock(file, LOCK_EX);
    if (::fork() != 0) {
      ::close(file);
      ::close(high);
      for (;;) ::pause();
    }
    ::close(high);
    for (;;) ::pause();
  }
  ::close(ends[1]);
  char end = 0;
  EXPECT_EQ(::read(ends[0], &end, 1), 0);  // both processes have reached their wait
  ::close(ends[0]);
  const auto list = collect_files(parent, FileRules());
  ASSERT_TRUE(list.has_value()) << list.error().message();
  EXPECT_EQ(list->locks.size(), 1u);
  EXPECT_FALSE(check_files(*list).has_value());
  ::kill(-parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
}

TEST_F(FileLocks, LockOnANodeLocalFileIsAccepted) {
  EXPECT_EQ(answer([](int file) { (void)!::flock(file, LOCK_EX); }, true), "");
  EXPECT_EQ(answer([](int file) { lock_range(file, F_SETLK, F_WRLCK); }, true), "");
}

TEST_F(FileLocks, ReadLockIsAccepted) {
  EXPECT_EQ(answer([](int file) { (void)!::flock(file, LOCK_SH); }), "");
  EXPECT_EQ(answer([](int file) { lock_range(file, F_SETLK, F_RDLCK); }), "");
}

TEST_F(FileLocks, LockHeldByAnotherProgramAtTheTargetIsRefused) {
  std::ofstream(folder_ / "other") << "AAAA";
  const Child holder([&] { (void)!::flock(::open((folder_ / "other").c_str(), O_RDWR), LOCK_EX); });
  const Child child([&] { (void)!::flock(::open(path_.c_str(), O_RDWR), LOCK_EX); });
  const auto list = collect_files(child.pid(), FileRules());
  ASSERT_TRUE(list.has_value());
  ASSERT_EQ(::rename((folder_ / "other").c_str(), path_.c_str()), 0);
  EXPECT_FALSE(check_files(*list).has_value());
}

TEST_F(FileLocks, LeaseIsRefusedAtTheSourceAndKept) {
  const std::string reason = answer([](int file) { (void)!::fcntl(file, F_SETLEASE, F_WRLCK); });
  EXPECT_THAT(reason, HasSubstr("(F_SETLEASE)"));
  EXPECT_THAT(reason, HasSubstr("let the program release it"));
}

TEST(LockLines, LockKindsAndRangesAreParsed) {
  const auto locks = locks_in(
      "pos:\t0\nflags:\t02\nlock:\t1: FLOCK  ADVISORY  WRITE 41 fe:00:7 0 EOF\n"
      "lock:\t2: OFDLCK ADVISORY  READ -1 fe:00:7 10 19\nlock:\t3: DELEG  ACTIVE    READ 5 fe:00:7 0 "
      "EOF\nlock:\t\n",
      41, 3, "/a");
  ASSERT_EQ(locks.size(), 2u);
  EXPECT_EQ(locks[0].text(), "/a is locked for writing (flock) by process 41 (descriptor 3)");
  EXPECT_FALSE(locks[1].excludes);
  EXPECT_EQ(locks[1].start, 10u);
  EXPECT_EQ(locks[1].end, 19u);
}

}  // namespace
}  // namespace ckpt::agent::host
