// SPDX-License-Identifier: Apache-2.0
// Tests of open files of /proc. A process's own files move with it; all other files are refused by name.
#include "agent/host_process/files/proc_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "agent/host_process/file_list.h"
#include "tests/unit/agent/support/child.h"

namespace ckpt::agent::host {
namespace {

using ::testing::HasSubstr;

std::string why_not(const std::function<void()>& prepare) {
  const Child child(prepare);
  const auto list = collect_files(child.pid(), FileRules());
  if (!list.has_value()) return list.error().message();
  for (const FileFact& fact : list->files)
    EXPECT_FALSE(names_process(fact.path)) << fact.path << " would be looked for at the target";
  return "";
}

TEST(ProcFiles, OwnProcFilesAreAccepted) {
  EXPECT_EQ(why_not([] { ::open("/proc/self/statm", O_RDONLY); }), "");
  EXPECT_EQ(why_not([] { ::open("/proc/self/fd", O_RDONLY | O_DIRECTORY); }), "");
  EXPECT_EQ(why_not([] { ::open("/proc/meminfo", O_RDONLY); }), "");
}

TEST(ProcFiles, ProcFilesOfOtherProcessesAreRefusedByName) {
  const std::string parent = "/proc/" + std::to_string(::getpid());
  const std::string reason = why_not([&parent] { ::open((parent + "/statm").c_str(), O_RDONLY); });
  EXPECT_THAT(reason, HasSubstr("descriptor 4 of process "));
  EXPECT_THAT(reason, HasSubstr(parent + "/statm, which describes process " + std::to_string(::getpid())));
  EXPECT_THAT(reason, HasSubstr("let the program close the file after reading it"));
  EXPECT_THAT(why_not([] { ::open("/proc/thread-self/stat", O_RDONLY); }),
              HasSubstr("one of the process's threads"));
  EXPECT_THAT(why_not([] { (void)!::chdir("/proc/self"); }), HasSubstr("working directory"));
}

TEST(ProcFiles, FilesOfProcessesMoveWithAnOwnProc) {
  EXPECT_EQ(why_not_in_own_proc("/proc/41/statm"), "");
  EXPECT_EQ(why_not_in_own_proc("/proc/meminfo"), "");
  EXPECT_NE(why_not_in_own_proc("/proc/41/task/42/comm"), "");
  EXPECT_NE(why_not_in_own_proc("/sys/fs/cgroup/job/memory.current"), "");
}

TEST(ProcFiles, PathsOfOtherProcessesAreDistinguishedFromOwnPaths) {
  EXPECT_EQ(why_not_its_own(41, "/proc/41/statm"), "");
  EXPECT_EQ(why_not_its_own(41, "/proc/sys/kernel/pid_max"), "");
  EXPECT_EQ(why_not_its_own(41, "/sys/fs/cgroup/cgroup.controllers"), "");
  EXPECT_NE(why_not_its_own(41, "/sys/fs/cgroup/job/memory.current"), "");
  EXPECT_NE(why_not_its_own(41, "/proc/42/statm"), "");
  EXPECT_EQ(by_self("/proc/41/statm", {41, 42}), "/proc/self/statm");
  EXPECT_EQ(by_self("/proc/41", {41}), "/proc/self/.");
  EXPECT_EQ(by_self("/proc/43/statm", {41, 42}), "/proc/43/statm");
  EXPECT_EQ(by_self("/proc/41/task/44/stat", {41}), "/proc/41/task/44/stat");
  EXPECT_EQ(by_self("/home/41", {41}), "/home/41");
}

}  // namespace
}  // namespace ckpt::agent::host
