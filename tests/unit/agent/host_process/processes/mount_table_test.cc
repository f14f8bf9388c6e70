// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/processes/mount_table.h"

#include <gtest/gtest.h>
#include <sys/mount.h>

namespace ckpt::agent::host {
namespace {

std::vector<std::string> paths_of(const std::vector<Mount>& mounts) {
  std::vector<std::string> paths;
  paths.reserve(mounts.size());
  for (const Mount& mount : mounts) paths.push_back(mount.path);
  return paths;
}

TEST(MountTable, FieldsOfALine) {
  const auto mounts = parse_mounts(
      "36 35 98:0 /sub /mnt/a\\040b ro,nodev shared:7 master:3 - ext4 /dev/vda rw\n"
      "37 36 0:5 / /mnt/c rw,relatime master:3 - tmpfs tmpfs rw\n"
      "38 36 0:6 / /mnt/d rw unbindable - tmpfs tmpfs rw\n");
  ASSERT_EQ(mounts.size(), 3U);
  EXPECT_EQ(mounts[0].id, 36);
  EXPECT_EQ(mounts[0].parent, 35);
  EXPECT_EQ(mounts[0].device, "98:0");
  EXPECT_EQ(mounts[0].root, "/sub");
  EXPECT_EQ(mounts[0].path, "/mnt/a b");
  EXPECT_EQ(mounts[0].flags, static_cast<std::uint32_t>(MS_RDONLY | MS_NODEV));
  EXPECT_EQ(mounts[0].group, 7U);
  EXPECT_EQ(mounts[0].type, "ext4");
  EXPECT_EQ(mounts[1].group, 3U);
  EXPECT_TRUE(mounts[2].is_unbindable);
}

TEST(MountTable, FuseMountOfAUserMayExcludeRoot) {
  const auto mounts = parse_mounts(
      "1 0 0:1 / /run/doc rw - fuse.portal portal rw,user_id=1000,group_id=1000\n"
      "2 0 0:2 / /mnt/all rw - fuse.sshfs host: rw,user_id=1000,group_id=1000,allow_other\n"
      "3 0 0:3 / /mnt/root rw - fuse host: rw,user_id=0,group_id=0\n"
      "4 0 0:4 / /sys/fs/fuse/connections rw - fusectl none rw\n");
  ASSERT_EQ(mounts.size(), 4U);
  EXPECT_TRUE(mounts[0].is_of_one_user);
  for (const std::size_t open : {1U, 2U, 3U}) EXPECT_FALSE(mounts[open].is_of_one_user) << open;
}

TEST(MountTable, MalformedLinesAreLeftOut) {
  for (const char* text : {"", "x", "36 35 98:0 / /mnt rw", "36 35 98:0 / mnt rw - tmpfs x rw", "36 35"})
    EXPECT_TRUE(parse_mounts(text).empty()) << text;
}

TEST(MountTable, CoveredMountsAreRemoved) {
  auto mounts = parse_mounts(
      "1 0 1:1 / / rw - ext4 a rw\n"
      "2 1 1:2 / /mnt/old rw - ext4 a rw\n"
      "3 2 1:3 / /mnt/old/in rw - ext4 a rw\n"
      "4 1 1:4 / /mnt rw - ext4 a rw\n"
      "5 4 1:5 / /mnt/new rw - ext4 a rw\n"
      "6 1 1:6 / /dev rw - ext4 a rw\n"
      "7 6 1:7 / /dev rw - ext4 a rw\n"
      "8 1 1:8 / /mnt2 rw - ext4 a rw\n");
  remove_covered(mounts);
  EXPECT_EQ(paths_of(mounts), (std::vector<std::string>{"/", "/mnt", "/mnt/new", "/dev", "/mnt2"}));
}

}  // namespace
}  // namespace ckpt::agent::host
