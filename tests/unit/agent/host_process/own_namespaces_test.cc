// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/processes/own_namespaces.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

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
  EXPECT_TRUE(mounts_of(::getpid()).contains(mount_of_descriptor(::getpid(), file.get())));
  EXPECT_EQ(mount_of_descriptor(::getpid(), 100'000), -1);
}

}  // namespace
}  // namespace ckpt::agent::host
