// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "agent/host_process/criu_image/lazy_pages_choice.h"
#include "agent/migration/modes/process_mode.h"

namespace ckpt::agent {
namespace {

constexpr std::uint64_t kMib = std::uint64_t{1} << 20;
constexpr std::uint64_t kGib = std::uint64_t{1} << 30;

host::TreeSize tree(std::uint64_t private_bytes, std::uint64_t shared_bytes) {
  host::TreeSize size;
  size.private_bytes = private_bytes;
  size.shared_bytes = shared_bytes;
  size.processes = 1;
  size.threads = 4;
  return size;
}

TEST(HostMemoryWork, RestoreWaitsForSmallPiecesAndForMemoryThatCannotBeLazy) {
  const auto small = host_memory_work(tree(10 * kMib, 0), 0, 0);
  EXPECT_EQ(small.read, 10 * kMib);
  EXPECT_EQ(small.restored, 10 * kMib);
  const auto large = host_memory_work(tree(3 * kGib, 0), 0, 0);
  EXPECT_EQ(large.read, 3 * kGib);
  EXPECT_EQ(large.restored, host::kMaxEagerBytes);
  const auto shares = host_memory_work(tree(3 * kGib, 500 * kMib), 300 * kMib, 0);
  EXPECT_EQ(shares.read, 3 * kGib + 200 * kMib) << "without the memory of the device";
  EXPECT_EQ(shares.restored, host::kMaxEagerBytes + 200 * kMib) << "what is shared does not follow";
  const auto names = host_memory_work(tree(3 * kGib, 0), 0, kGib);
  EXPECT_EQ(names.restored, host::kMaxEagerBytes + kGib) << "nor does what has a name";
}

TEST(HostMemoryWork, DumpSkipsMemoryThatWasCopiedEarly) {
  const auto whole = host_memory_work(tree(3 * kGib + 20 * kMib, 0), 0, 0);
  const auto ahead = copied_ahead(whole, 3 * kGib, 100 * kMib, true);
  EXPECT_EQ(ahead.read, 120 * kMib);
  EXPECT_EQ(ahead.restored, whole.restored);
  EXPECT_GT(ahead.scan, 0);
  EXPECT_GT(copied_ahead(whole, 3 * kGib, 100 * kMib, false).scan, ahead.scan) << "CRIU reads it for nobody";
  EXPECT_LT(copied_ahead(whole, 3 * kGib, 0, true).read, 25 * kMib);
  EXPECT_EQ(copied_ahead(whole, 9 * kGib, 10 * kGib, true).read, whole.read) << "no more than there is";
}

TEST(HostMemoryWork, SourceAndTargetEstimateTheSameRestoreBytes) {
  for (const std::uint64_t bytes : {10 * kMib, 3 * kGib}) {
    const auto expected = host_memory_work(tree(bytes, 0), 0, 0);
    const std::uint64_t lazy = bytes > host::kMaxEagerBytes ? bytes - 2 * kMib : 0;
    EXPECT_EQ(host::restored_bytes(bytes, lazy), expected.restored);
  }
  EXPECT_EQ(host::restored_bytes(kGib, 0), kGib) << "a target where nothing follows";
}

TEST(ProcessWork, EstimatedPauseTermsGrowWithTheirWork) {
  const host::TreeSize size = tree(3 * kGib, 0);
  HostMemoryWork memory = copied_ahead(host_memory_work(size, 0, 0), 3 * kGib, 0, true);
  const PauseWork work = process_work(size, memory, 0, true, true);
  EXPECT_EQ(work[PauseTerm::kDump].bytes, memory.read);
  EXPECT_EQ(work[PauseTerm::kDump].known, memory.scan);
  EXPECT_EQ(work[PauseTerm::kDump].items, dump_cost(size));
  EXPECT_EQ(work[PauseTerm::kHostRestore].items, restore_cost(size));
  EXPECT_EQ(work[PauseTerm::kHostRestore].bytes, memory.restored);
  EXPECT_TRUE(work.saves_beside_copy());
}

}  // namespace
}  // namespace ckpt::agent
