// SPDX-License-Identifier: Apache-2.0
// One named test per rule of the engine. CMake also builds the engine without each rule and expects the
// rule's test to fail there (tests/fault/CMakeLists.txt). A test that passes without its rule proves nothing.
#include <gtest/gtest.h>

#include "tests/unit/libckpt/datapath/engine/engine_pair.h"

namespace ckpt::engine {
namespace {

using test::EnginePair;
using test::kKiB;
using test::kMiB;
using test::must;

constexpr std::uint64_t kChunk = 64 * kKiB;

// Hooks for a chunk that is A when it is scanned, B when it is copied, and A again afterwards.
class ChangeAndChangeBack : public FaultHooks {
 public:
  std::atomic<const test::Buffer*> buffer{nullptr};
  void before_copy(const ChunkId& id, const TransferRegion&) override {
    const test::Buffer* armed = buffer.load();
    if (id.chunk == 3 && armed != nullptr) armed->fill(3 * kChunk, kChunk, 'B');
  }
  void on_staged(const ChunkId& id, std::span<std::byte>) override {
    if (id.chunk != 3) return;
    if (const test::Buffer* armed = buffer.exchange(nullptr)) armed->fill(3 * kChunk, kChunk, 'A');
  }
};

TEST(Rule1, TheSentMapRecordsTheContentAtTheTarget) {
  ChangeAndChangeBack hooks;
  EnginePair pair({.lanes = 1, .source_hooks = &hooks});
  pair.announce();
  pair.source().fill(0, 4 * kMiB, 'A');
  hooks.buffer = &pair.source();
  must(pair.sender().run_round());
  ASSERT_EQ(hooks.buffer.load(), nullptr) << "the chunk was not copied";
  EXPECT_NE(pair.differences(), 0u) << "the target has the middle version now";
  auto final_round = pair.sender().run_final({});
  ASSERT_TRUE(final_round.has_value());
  auto verdict = pair.commit();
  EXPECT_TRUE(verdict.has_value()) << verdict.error().to_string();
  EXPECT_EQ(pair.differences(), 0u);
}

class TearDuringCopy : public FaultHooks {
 public:
  std::atomic<const test::Buffer*> buffer{nullptr};
  void before_copy(const ChunkId& id, const TransferRegion&) override {
    if (id.chunk != 5) return;
    if (const test::Buffer* armed = buffer.exchange(nullptr)) armed->fill(5 * kChunk, kChunk / 2, 'n');
  }
};

TEST(Rule2, ATornChunkIsDetectedAtTheBarrier) {
  TearDuringCopy hooks;
  EnginePair pair({.source_hooks = &hooks});
  pair.announce();
  pair.source().fill(0, 4 * kMiB, 'o');
  hooks.buffer = &pair.source();
  must(pair.sender().run_round());
  pair.source().fill(5 * kChunk, kChunk, 'n');  // the job completes its write
  pair.switch_over();
  EXPECT_EQ(pair.final_report.dirty_bytes, kChunk);
  EXPECT_EQ(pair.differences(), 0u);
}

// Hooks that hold one message at the target until the round has returned, but for at most half a second. A
// round must not return before the message.
class HoldOneMessage : public FaultHooks {
 public:
  std::atomic<bool> armed{false};
  void on_received(const ChunkId& id, std::span<std::byte>) override {
    if (id.chunk != 7 || !armed.exchange(false)) return;
    std::unique_lock lock(mutex);
    changed.wait_for(lock, std::chrono::milliseconds(500), [this] { return returned; });
  }
  void round_returned() {
    const std::lock_guard lock(mutex);
    returned = true;
    changed.notify_all();
  }
  std::mutex mutex;
  std::condition_variable changed;
  bool returned = false;
};

TEST(Rule2, ARoundEndsOnlyWhenNoChunkIsInFlight) {
  HoldOneMessage hooks;
  EnginePair pair({.sizes = {8 * kMiB}, .target_hooks = &hooks});
  pair.announce();
  pair.source().write(0, test::random_bytes(8 * kMiB, 1));
  hooks.armed.store(true);
  auto round = pair.sender().run_round();
  const std::uint64_t under_way = pair.sender().outstanding_chunks();
  hooks.round_returned();
  ASSERT_TRUE(round.has_value());
  EXPECT_EQ(under_way, 0u)
      << "the next round could send a newer version on another lane, and the old one land last";
}

TEST(Rule4, AChangeAtTheTargetAfterTheAcknowledgementIsDetected) {
  EnginePair pair({});
  pair.announce();
  pair.source().write(0, test::random_bytes(4 * kMiB, 2));
  must(pair.sender().run_round());
  EXPECT_EQ(pair.differences(), 0u);
  pair.target().fill(1'000'000, 1, 0x5A);  // changes the target's memory without notifying the engine
  must(pair.sender().run_final({}));
  auto verdict = pair.commit();
  EXPECT_TRUE(verdict.has_value()) << verdict.error().to_string();
  EXPECT_EQ(pair.differences(), 0u) << "the switch was committed on memory that is not the source's";
  EXPECT_EQ(pair.mismatches(), 1u) << "repaired, but not reported";
}

TEST(Rule4, AScanBeforeThePauseDetectsChangesAtTheTarget) {
  EnginePair pair({});
  pair.announce();
  pair.source().write(0, test::random_bytes(4 * kMiB, 3));
  must(pair.sender().run_round());
  pair.target().fill(1'000'000, 1, 0x5A);
  pair.sender().begin_verify();
  must(pair.sender().wait_verified());
  pair.source().fill(2 * kMiB, kChunk, 'n');  // changes after the scan; the chunk is verified when it arrives
  pair.add_buffers(7, 1, 1 * kMiB);           // a region that is added is also verified when it arrives
  pair.announce();
  must(pair.sender().run_round());
  pair.switch_over();
  EXPECT_EQ(pair.differences(), 0u);
  EXPECT_EQ(pair.mismatches(), 1u) << "repaired, but not reported";
  EXPECT_EQ(pair.report.state_bytes, 5 * kMiB);
}

TEST(Rule4, AScanIsRepeatedIfNoRoundRanAfterThePreviousScan) {
  EnginePair pair({});
  pair.announce();
  pair.source().write(0, test::random_bytes(4 * kMiB, 4));
  must(pair.sender().run_round());
  pair.sender().begin_verify();
  must(pair.sender().wait_verified());
  pair.target().fill(1'000'000, 1, 0x5A);  // a change between the first and the second scan
  pair.sender().begin_verify();
  must(pair.sender().wait_verified());
  pair.switch_over();
  EXPECT_EQ(pair.differences(), 0u);
  EXPECT_EQ(pair.mismatches(), 1u) << "repaired, but not reported";
}

TEST(Rule5, RegionsAreAddedAndDroppedDuringRounds) {
  EnginePair pair({.sizes = {2 * kMiB, 2 * kMiB, 1 * kMiB}});
  pair.announce();
  test::Writer writer(pair, {1}, 4);
  must(pair.sender().run_round());
  pair.drop(2);
  pair.free_buffers(2);
  must(pair.sender().run_round());
  pair.add_buffers(2, 2, 3 * kMiB);  // the new region has the same id, a new generation and another size
  pair.add_buffers(9, 1, 100 * kKiB);
  pair.announce();
  pair.source(2).write(0, test::random_bytes(3 * kMiB, 6));
  must(pair.sender().run_round());
  pair.drop(3);
  pair.free_buffers(3);
  writer.stop();
  pair.switch_over();
  EXPECT_EQ(pair.differences(), 0u);
  EXPECT_EQ(pair.report.state_bytes, 5 * kMiB + 100 * kKiB);
}

TEST(Rule6, AZeroChunkOverwritesTheTargetWithZeroes) {
  EnginePair pair({});
  pair.announce();
  pair.source().fill(0, 4 * kMiB, 0);
  auto round = pair.sender().run_round();
  ASSERT_TRUE(round.has_value()) << round.error().to_string();
  EXPECT_EQ(pair.differences(), 0u) << "the target kept what its memory held before";
  EXPECT_EQ(pair.mismatches(), 0u);
}

class DropAtFirstCopy : public FaultHooks {
 public:
  std::function<void()> drop;
  void on_received(const ChunkId&, std::span<std::byte>) override {
    if (!done_.exchange(true)) drop();
  }

 private:
  std::atomic<bool> done_{false};
};

TEST(Rule7, ARegionDroppedDuringARoundIsReleasedImmediately) {
  DropAtFirstCopy hooks;
  EnginePair pair({.sizes = {1 * kMiB, 8 * kMiB}, .target_hooks = &hooks});
  pair.announce();
  pair.source(1).write(0, test::random_bytes(1 * kMiB, 2));
  pair.source(2).write(0, test::random_bytes(8 * kMiB, 3));
  bool held_after_drop = true;
  hooks.drop = [&] {
    pair.drop(2);
    held_after_drop = pair.engine_holds(2);
  };
  must(pair.sender().run_round());
  EXPECT_FALSE(held_after_drop) << "the job's next allocation would find no memory";
  pair.free_buffers(2);
  pair.switch_over();
  EXPECT_EQ(pair.differences(), 0u);
}

}  // namespace
}  // namespace ckpt::engine
