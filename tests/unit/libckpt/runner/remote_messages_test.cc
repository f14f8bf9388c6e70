// SPDX-License-Identifier: Apache-2.0
#include "libckpt/runner/remote_messages.h"

#include <gtest/gtest.h>

namespace ckpt::runner {
namespace {

TEST(RemoteMessagesTest, OneMigrationCannotExceedItsMessageLimit) {
  RemoteMessages remote({3, 100});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(remote.add(7).is_accepted);
  EXPECT_FALSE(remote.add(7).is_accepted);
  EXPECT_TRUE(remote.add(8).is_accepted);
  EXPECT_EQ(remote.in_all(), 4U);
  remote.remove(7);
  EXPECT_TRUE(remote.add(7).is_accepted);
}

TEST(RemoteMessagesTest, MigrationWithTheMostMessagesYieldsToAnotherMigration) {
  RemoteMessages remote({3, 4});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(remote.add(7).is_accepted);
  EXPECT_TRUE(remote.add(8).is_accepted);
  const auto verdict = remote.add(9);
  EXPECT_TRUE(verdict.is_accepted);
  EXPECT_EQ(verdict.loses_newest, 7U);
  EXPECT_EQ(remote.in_all(), 4U);
}

TEST(RemoteMessagesTest, AMigrationDisplacesNoMessageOfAMigrationWithEquallyManyMessages) {
  RemoteMessages remote({3, 4});
  for (const wire::MigrationId id : {7U, 7U, 8U, 8U}) EXPECT_TRUE(remote.add(id).is_accepted);
  EXPECT_FALSE(remote.add(7).is_accepted);
  EXPECT_FALSE(remote.add(8).is_accepted);
  EXPECT_EQ(remote.in_all(), 4U);
  EXPECT_TRUE(remote.add(9).is_accepted);
}

TEST(RemoteMessagesTest, AllQueuePlacesAreFreeAfterAllMessagesAreHandled) {
  RemoteMessages remote({32, 512});
  for (int turn = 0; turn < 1000; ++turn)
    for (wire::MigrationId id = 100; id < 200; ++id) remote.add(id);
  EXPECT_EQ(remote.in_all(), 512U);
  for (int turn = 0; turn < 32; ++turn)
    for (wire::MigrationId id = 100; id < 200; ++id) remote.remove(id);
  EXPECT_EQ(remote.in_all(), 0U);
}

}  // namespace
}  // namespace ckpt::runner
