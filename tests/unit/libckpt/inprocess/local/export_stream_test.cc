// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/local/export_stream.h"

#include <gtest/gtest.h>

#include <numeric>

namespace ckpt::local {
namespace {

std::vector<std::uint64_t> ids(std::size_t count) {
  std::vector<std::uint64_t> out(count);
  std::iota(out.begin(), out.end(), 1);
  return out;
}

TEST(ExportStream, BatchesWaitForTheirAcknowledgement) {
  ExportStream stream;
  stream.start(7, ids(100));
  const auto first = stream.next_batch();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->regions.size(), 64u);
  EXPECT_FALSE(stream.next_batch());
  EXPECT_FALSE(stream.consume_initial_end());
  stream.acknowledged(first->sequence + 1);
  EXPECT_FALSE(stream.next_batch()) << "a foreign acknowledgement";
  stream.acknowledged(first->sequence);
  const auto second = stream.next_batch();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->regions.size(), 36u);
  EXPECT_FALSE(stream.consume_initial_end());
  stream.acknowledged(second->sequence);
  EXPECT_TRUE(stream.consume_initial_end());
  EXPECT_FALSE(stream.consume_initial_end()) << "once";
}

TEST(ExportStream, EmptyExportEndsImmediately) {
  ExportStream stream;
  EXPECT_FALSE(stream.consume_initial_end());
  stream.start(7, {});
  EXPECT_FALSE(stream.next_batch());
  EXPECT_TRUE(stream.consume_initial_end());
}

TEST(ExportStream, FreeingOfAnUnsentRegionIsNotReported) {
  ExportStream stream;
  stream.start(7, ids(70));
  const auto batch = stream.next_batch();
  ASSERT_TRUE(batch);
  EXPECT_FALSE(stream.region_freed(70, 1)) << "it had not been sent";
  EXPECT_FALSE(stream.waits_for_frees());
  EXPECT_TRUE(stream.region_freed(3, 1));
  EXPECT_TRUE(stream.waits_for_frees());
  stream.free_acknowledged(3, 2);
  EXPECT_TRUE(stream.waits_for_frees()) << "another generation";
  stream.free_acknowledged(3, 1);
  EXPECT_FALSE(stream.waits_for_frees());
  stream.acknowledged(batch->sequence);
  EXPECT_EQ(stream.next_batch()->regions, (std::vector<std::uint64_t>{65, 66, 67, 68, 69}));
}

TEST(ExportStream, RegionsAddedLaterAreSentLater) {
  ExportStream stream;
  stream.region_added(1);
  EXPECT_FALSE(stream.next_batch()) << "nobody has asked";
  stream.start(7, {});
  EXPECT_TRUE(stream.consume_initial_end());
  stream.region_added(2);
  EXPECT_EQ(stream.next_batch()->regions, (std::vector<std::uint64_t>{2}));
  EXPECT_FALSE(stream.consume_initial_end());
}

TEST(ExportStream, StopDiscardsTheExport) {
  ExportStream stream;
  stream.start(7, ids(3));
  const auto old = stream.next_batch();
  EXPECT_TRUE(stream.region_freed(1, 1));
  stream.stop();
  EXPECT_FALSE(stream.active());
  EXPECT_FALSE(stream.waits_for_frees());
  EXPECT_FALSE(stream.region_freed(2, 1));
  stream.start(8, ids(2));
  const auto fresh = stream.next_batch();
  ASSERT_TRUE(fresh);
  stream.acknowledged(old->sequence);
  stream.region_added(9);
  EXPECT_FALSE(stream.next_batch()) << "an old acknowledgement does not count";
}

}  // namespace
}  // namespace ckpt::local
