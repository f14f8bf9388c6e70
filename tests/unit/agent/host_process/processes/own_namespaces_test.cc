// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/processes/own_namespaces.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "libckpt/base/fd.h"
#include "tests/unit/agent/support/child.h"

namespace ckpt::agent::host {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(OwnNamespaces, NodesFoldersAreNotTheJobs) {
  const OwnNamespaces none;
  EXPECT_TRUE(none.folders().empty());
  EXPECT_FALSE(none.contains("/dev/shm/a"));
}

TEST(OwnNamespaces, FoldersOfTheJob) {
  OwnNamespaces own{true, false};
  EXPECT_TRUE(own.contains("/dev/shm"));
  EXPECT_TRUE(own.contains("/dev/shm/a/b"));
  EXPECT_FALSE(own.contains("/dev/shm2"));
  EXPECT_FALSE(own.contains("/tmp/a"));
  own.private_tmp = true;
  EXPECT_TRUE(own.contains("/tmp/a"));
}

TEST(OwnNamespaces, MountOfADescriptorIsAmongTheMountsOfItsProcess) {
  const UniqueFd file(::open("/proc/self/status", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(file);
  const int mount = mount_of_descriptor(::getpid(), file.get());
  const auto mounts = mounts_seen_by("/proc/self");
  ASSERT_TRUE(mounts.has_value());
  EXPECT_TRUE(std::ranges::any_of(*mounts, [mount](const Mount& seen) { return seen.id == mount; }));
  EXPECT_EQ(mount_of_descriptor(::getpid(), 100'000), -1);
}

const std::string kNode =
    "1 0 8:1 / / rw - ext4 a rw\n"
    "2 1 0:5 / /dev rw - devtmpfs a rw\n"
    "3 1 8:2 /srv /data rw - ext4 a rw\n";

std::vector<std::string> strange(const std::string& of_job, bool private_tmp = false) {
  return strange_mounts(parse_mounts(of_job), parse_mounts(kNode), OwnNamespaces{true, private_tmp});
}

TEST(OwnNamespaces, NodesMountsAndTheJobsFoldersAreKnown) {
  const std::string own =
      "4 1 0:7 / /proc rw - proc a rw\n"
      "5 2 0:8 / /dev/shm rw - tmpfs a rw\n";
  EXPECT_TRUE(strange(kNode + own).empty());
  EXPECT_TRUE(strange(kNode + own + "6 1 0:9 / /tmp rw - tmpfs a rw\n", true).empty());
  // A target that lacks a mount has given the job its folder of that path.
  EXPECT_TRUE(strange("1 0 8:1 / / rw - ext4 a rw\n2 1 8:1 /opt/x /opt/x rw - ext4 a rw\n").empty());
  EXPECT_TRUE(strange("1 0 8:2 /srv/x /data/x rw - ext4 a rw\n").empty());
}

TEST(OwnNamespaces, MountsOfTheProgramAreStrange) {
  EXPECT_THAT(strange(kNode + "6 1 0:9 / /tmp rw - tmpfs a rw\n"), ElementsAre("/tmp"));
  EXPECT_THAT(strange(kNode + "6 1 8:1 /etc /mnt rw - ext4 a rw\n"), ElementsAre("/mnt"));
  EXPECT_THAT(strange(kNode + "6 1 0:9 / /dev/shm/in rw - tmpfs a rw\n"), ElementsAre("/dev/shm/in"));
}

std::vector<std::string> changed(const std::string& of_job, bool private_tmp = false) {
  return changed_own_mounts(parse_mounts(of_job),
                            parse_mounts(kNode + "9 2 0:20 / /dev/shm rw - tmpfs a rw\n"),
                            OwnNamespaces{true, private_tmp});
}

TEST(OwnNamespaces, OwnFolderThatWasUnmountedOrCoveredIsReported) {
  const std::string proc = "4 1 0:7 / /proc rw - proc a rw\n";
  const std::string nodes_shm = "5 2 0:20 / /dev/shm rw - tmpfs a rw\n";
  const std::string shm = "6 5 0:8 / /dev/shm rw - tmpfs a rw\n";
  EXPECT_TRUE(changed(kNode + proc + shm).empty());
  EXPECT_TRUE(changed(kNode + nodes_shm + proc + shm).empty()) << "it covers the node's";
  EXPECT_THAT(changed(kNode + nodes_shm + proc), ElementsAre("/dev/shm")) << "it was unmounted";
  EXPECT_THAT(changed(kNode + shm + "7 6 0:9 / /dev/shm rw - tmpfs a rw\n" + proc), ElementsAre("/dev/shm"));
  EXPECT_THAT(changed(kNode + shm + "7 6 8:1 /etc /dev/shm rw - ext4 a rw\n" + proc),
              ElementsAre("/dev/shm"));
  EXPECT_THAT(changed(kNode + shm), ElementsAre("/proc"));
  EXPECT_THAT(changed(kNode + proc + shm, true), ElementsAre("/tmp"));
}

TEST(OwnNamespaces, OnlySmallContentsOfOwnFoldersArePacked) {
  const OwnNamespaces own{true, true};
  EXPECT_EQ(why_too_much({kMaxOwnMemory, kMaxOwnMemoryFiles}, own), "");
  EXPECT_THAT(why_too_much({kMaxOwnMemory + 1, 0}, own), HasSubstr("256 MiB of files in /dev/shm and /tmp"));
  EXPECT_THAT(why_too_much({0, kMaxOwnMemoryFiles + 1}, own), HasSubstr("at most 65536 can be moved"));
}

TEST(OwnNamespaces, ContentsOfAJobThatHasExitedCannotBeRead) {
  EXPECT_FALSE(own_memory(-1, OwnNamespaces{true, false}));
  EXPECT_EQ(own_memory(-1, OwnNamespaces())->bytes, 0U) << "it has no folders";
}

TEST(OwnNamespaces, NodesNamespacesAreNotTheJobs) {
  EXPECT_THAT(why_not_own(::getpid(), OwnNamespaces{true, false}),
              ElementsAre(HasSubstr("although the job was started with --namespaces own")));
}

TEST(OwnNamespaces, ThreadSeesTheIpcNamespaceOfAProcess) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const auto ipc_of = [](const std::string& process) {
    return std::filesystem::read_symlink("/proc/" + process + "/ns/ipc").string();
  };
  const Child other([] { (void)::unshare(CLONE_NEWIPC); });
  const std::string pid = std::to_string(other.pid());
  ASSERT_NE(ipc_of(pid), ipc_of("self"));
  std::string seen;
  EXPECT_TRUE(within_ipc_of(other.pid(), [&seen, &ipc_of] { seen = ipc_of("thread-self"); }));
  EXPECT_EQ(seen, ipc_of(pid));
  EXPECT_FALSE(within_ipc_of(-1, [] {}));
}

}  // namespace
}  // namespace ckpt::agent::host
