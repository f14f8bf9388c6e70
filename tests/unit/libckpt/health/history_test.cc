// SPDX-License-Identifier: Apache-2.0
#include "libckpt/health/history.h"

#include <gtest/gtest.h>

namespace ckpt::health {
namespace {

constexpr std::int64_t kNow = 1'000'000'000;

const XidTable& table() {
  static const XidTable built = XidTable::built_in();
  return built;
}

void add(History& history, const std::string& gpu, std::uint32_t xid, std::uint64_t job,
         std::int64_t time_ms = kNow) {
  Occurrence occurrence;
  occurrence.gpu = gpu;
  occurrence.xid = xid;
  occurrence.job = job;
  occurrence.time_ms = time_ms;
  history.add(std::move(occurrence));
}

bool suspect(const History& history, const std::string& gpu, std::uint32_t xid, std::int64_t now = kNow) {
  return !history.suspicion(gpu, *table().xid(xid), now, RepeatRule{}).empty();
}

TEST(History, FaultsOfThreeDifferentJobsMakeAGpuSuspect) {
  History history;
  add(history, "a", 13, 1);
  add(history, "a", 13, 2);
  EXPECT_FALSE(suspect(history, "a", 13));
  add(history, "a", 13, 2);  // a second error of job "a"
  EXPECT_FALSE(suspect(history, "a", 13));
  add(history, "a", 13, 3);
  EXPECT_TRUE(suspect(history, "a", 13));
  EXPECT_FALSE(suspect(history, "b", 13));
  EXPECT_FALSE(suspect(history, "a", 31));
}

TEST(History, FaultThatMovesWithItsJobMakesNoGpuSuspect) {
  History history;
  for (const std::uint64_t job : {1, 2, 3}) add(history, "a", 31, job);
  EXPECT_TRUE(suspect(history, "a", 31));
  add(history, "b", 31, 3);
  EXPECT_FALSE(suspect(history, "a", 31));
}

TEST(History, UnknownJobsCountAsOneJob) {
  History history;
  for (int i = 0; i < 10; ++i) add(history, "a", 13, 0);
  EXPECT_FALSE(suspect(history, "a", 13));
}

TEST(History, UnknownJobOnAnotherGpuIsADifferentJob) {
  History history;
  for (const std::uint64_t job : {0, 1, 2}) add(history, "a", 13, job);
  add(history, "b", 13, 0);
  EXPECT_TRUE(suspect(history, "a", 13));
}

TEST(History, ARuleWithZeroJobsIsDisabled) {
  History history;
  RepeatRule off;
  off.jobs = 0;
  EXPECT_EQ(history.suspicion("a", *table().xid(13), kNow, off), "");
}

TEST(History, EveryFirmwareFaultIsCounted) {
  History history;
  for (int i = 0; i < 3; ++i) add(history, "a", 38, 0);
  EXPECT_TRUE(suspect(history, "a", 38));
  EXPECT_FALSE(suspect(history, "b", 38));
}

TEST(History, OldFaultsAreNotCounted) {
  History history;
  for (const std::uint64_t job : {1, 2, 3}) add(history, "a", 13, job);
  EXPECT_TRUE(suspect(history, "a", 13, kNow + 24LL * 3600 * 1000 - 1));
  EXPECT_FALSE(suspect(history, "a", 13, kNow + 24LL * 3600 * 1000));
}

TEST(History, SecondaryAndGpuWideXidsAreNeverCounted) {
  History history;
  for (const std::uint64_t job : {1, 2, 3, 4}) {
    add(history, "a", 45, job);
    add(history, "a", 95, job);
    add(history, "a", 14, job);
  }
  EXPECT_FALSE(suspect(history, "a", 45));  // the Xid follows another Xid
  EXPECT_FALSE(suspect(history, "a", 95));  // this Xid leads to an action in any case
  EXPECT_FALSE(suspect(history, "a", 14));  // this Xid loses no context
}

TEST(History, HistoryIsBounded) {
  History history;
  for (std::size_t i = 0; i < kMaxOccurrences + 5; ++i) add(history, "a", 13, i);
  EXPECT_EQ(history.all().size(), kMaxOccurrences);
  EXPECT_EQ(history.all().front().job, 5U);
}

}  // namespace
}  // namespace ckpt::health
