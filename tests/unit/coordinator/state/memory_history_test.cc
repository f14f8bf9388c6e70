// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/memory_history.h"

#include <gtest/gtest.h>

#include "coordinator/state/documents.h"

namespace ckpt::coordinator {
namespace {

constexpr std::int64_t kMinute = 60'000;

TEST(MemoryHistory, HistoryReportsTheCurrentPeakAndPerMinuteMemory) {
  MemoryHistory history;
  EXPECT_TRUE(history.add(10 * kMinute, 5));
  EXPECT_TRUE(history.add(10 * kMinute + 1, 9));   // a new peak
  EXPECT_FALSE(history.add(10 * kMinute + 2, 9));  // no new information
  EXPECT_FALSE(history.add(10 * kMinute + 3, 2));
  EXPECT_TRUE(history.add(12 * kMinute, 3));  // a new minute; the eleventh minute has no report
  EXPECT_EQ(history.now(), 3U);
  EXPECT_EQ(history.peak(), 9U);
  EXPECT_EQ(history.peak_ms(), 10 * kMinute + 1);
  const std::deque<MemoryMinute> expected{{10, 9}, {12, 3}};
  EXPECT_EQ(history.minutes(), expected);
}

TEST(MemoryHistory, HistoryKeepsAnHour) {
  MemoryHistory history;
  for (std::int64_t minute = 0; minute < 500; ++minute)
    history.add(minute * kMinute, static_cast<std::uint64_t>(minute));
  ASSERT_EQ(history.minutes().size(), MemoryHistory::kMinutes);
  EXPECT_EQ(history.minutes().front(), MemoryMinute(440, 440));
  EXPECT_EQ(history.minutes().back(), MemoryMinute(499, 499));
}

TEST(MemoryHistory, AClockSetBackContinuesInTheLastMinute) {
  MemoryHistory history;
  history.add(100 * kMinute, 1);
  EXPECT_FALSE(history.add(3 * kMinute, 1));
  EXPECT_TRUE(history.add(4 * kMinute, 7));
  const std::deque<MemoryMinute> expected{{100, 7}};
  EXPECT_EQ(history.minutes(), expected);
}

TEST(MemoryHistory, HistoryIsStoredInTheJobDocument) {
  Job job;
  job.segments.emplace_back("a", 1);
  job.memory.add(7 * kMinute, 3);
  job.memory.add(8 * kMinute, 2);
  const Job again = job_from_document(job_document(job));
  EXPECT_EQ(again.memory.peak(), 3U);
  EXPECT_EQ(again.memory.peak_ms(), 7 * kMinute);
  EXPECT_EQ(again.memory.minutes(), job.memory.minutes());
  EXPECT_EQ(again.memory.now(), 0U);  // unknown until the node reports the value
}

TEST(MemoryHistory, EntriesOutOfOrderAreSkipped) {
  const auto history = MemoryHistory::restore(9, 5, {{3, 1}, {3, 2}, {1, 7}, {4, 4}});
  const std::deque<MemoryMinute> expected{{3, 1}, {4, 4}};
  EXPECT_EQ(history.minutes(), expected);
}

TEST(ExpectedMemory, ExpectedMemoryIsTheQuotaOrElseThePeakAndAtLeastTheHeldMemory) {
  Job job;
  job.ranks.resize(1);
  job.ranks[0].state_bytes = 4;
  EXPECT_EQ(job.expected_bytes(), 4U);
  job.memory.add(0, 9);
  job.memory.add(1, 5);
  EXPECT_EQ(job.held_bytes(), 5U);
  EXPECT_EQ(job.expected_bytes(), 9U);
  job.spec.gpu_memory_bytes = 7;  // a limit: the job cannot use 9 bytes again
  EXPECT_EQ(job.expected_bytes(), 7U);
  job.spec.gpu_memory_bytes = 3;
  EXPECT_EQ(job.expected_bytes(), 5U);
}

}  // namespace
}  // namespace ckpt::coordinator
