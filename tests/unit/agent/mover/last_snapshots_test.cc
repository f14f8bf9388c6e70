// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/snapshots/last_snapshots.h"

#include <gtest/gtest.h>

#include <optional>

namespace ckpt::mover {
namespace {

std::string name_of(int job) {
  return "job-" + std::to_string(job);
}

class LastSnapshotsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = Device::open(0);
    ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
    device_.emplace(*std::move(opened));
  }

  std::optional<Device> device_;
};

TEST_F(LastSnapshotsTest, ManyStoredSnapshotsDoNotExhaustTheStreams) {
  LastSnapshots shelf;
  for (int job = 0; job < 60; ++job) {
    auto last = LastSnapshot::create(*device_);
    ASSERT_TRUE(last.has_value()) << "job " << job << ": " << last.error().to_string();
    (*last)->version = 1;
    shelf.put({"vault", name_of(job)}, *std::move(last));
  }
  const auto first = shelf.extract({"vault", name_of(0)});
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->version, 1u);
}

TEST(LastSnapshots, TheOldestSnapshotIsEvictedWhenTooManyJobsAreKept) {
  LastSnapshots shelf;
  for (int job = 999; job > 900; --job) shelf.put({"vault", name_of(job)}, std::make_unique<LastSnapshot>());
  EXPECT_EQ(shelf.extract({"vault", name_of(999)}), nullptr);
  EXPECT_NE(shelf.extract({"vault", name_of(901)}), nullptr);
  EXPECT_NE(shelf.extract({"vault", name_of(920)}), nullptr);
}

TEST_F(LastSnapshotsTest, SnapshotWithoutItsScanGetsANewScanWithTheSameKey) {
  LastSnapshots shelf;
  const track::FingerprintParams* params = nullptr;
  for (int job = 0; job < 6; ++job) {
    auto last = LastSnapshot::create(*device_);
    ASSERT_TRUE(last.has_value()) << last.error().to_string();
    if (job == 0) params = (*last)->params.get();
    shelf.put({"vault", name_of(job)}, *std::move(last));
  }
  EXPECT_NE(shelf.extract({"vault", name_of(5)})->scan, nullptr);
  const auto first = shelf.extract({"vault", name_of(0)});
  ASSERT_EQ(first->scan, nullptr);
  ASSERT_TRUE(first->prepare_scan(*device_).has_value());
  EXPECT_NE(first->scan, nullptr);
  EXPECT_EQ(first->params.get(), params);
}

TEST(LastSnapshots, RemovedJobIsForgottenInEveryCheckpointStore) {
  LastSnapshots shelf;
  for (const char* checkpoint_store : {"a", "b"})
    for (int job = 1; job <= 2; ++job) {
      auto last = std::make_unique<LastSnapshot>();
      last->job = static_cast<wire::JobId>(job);
      shelf.put({checkpoint_store, name_of(job)}, std::move(last));
    }
  EXPECT_EQ(shelf.forget(1), 2u);
  EXPECT_EQ(shelf.forget(1), 0u);
  EXPECT_EQ(shelf.extract({"a", name_of(1)}), nullptr);
  EXPECT_NE(shelf.extract({"b", name_of(2)}), nullptr);
}

}  // namespace
}  // namespace ckpt::mover
